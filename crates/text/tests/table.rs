//! Tables as people see them.

use raddle_text::Table;

#[test]
fn columns_are_aligned() {
    let mut table = Table::new(["link", "packets", "state"]);
    table.row(["eth0", "12", "up"]);
    table.row(["a-long-name", "1.23M", ""]);
    table.row(["é", "-", "down"]);
    let expected = "link         packets  state\n\
                    eth0              12  up\n\
                    a-long-name    1.23M\n\
                    é                  -  down\n";
    assert_eq!(table.render(), expected);
    assert_eq!(Table::new(["a", "b"]).render(), "a  b\n");
}

#[test]
fn columns_are_left_out_whole() {
    let table = || {
        let mut table = Table::new(["link", "packets", "state", "note"]);
        table.row(["eth0", "12", "up", "x"]);
        table
    };
    let at = |width| {
        let mut table = table();
        let left_out = table.fit(width, &["link", "state", "packets"]);
        (table.render(), left_out.join(" "))
    };
    let all = "link  packets  state  note\neth0       12  up     x\n";
    assert_eq!(at(26), (all.into(), String::new()));
    let three = "link  packets  state\neth0       12  up\n";
    assert_eq!(at(25), (three.into(), "note".into()));
    // What is less needed, but has room, is shown.
    let narrow = "link  state  note\neth0  up     x\n";
    assert_eq!(at(19), (narrow.into(), "packets".into()));
    assert_eq!(at(1).0, "link\neth0\n");
}
