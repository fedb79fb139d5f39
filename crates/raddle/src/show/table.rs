//! Rendering for people: tables with aligned columns.

/// A table: a line of headings, then lines of cells; columns two spaces apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings. A column whose cells all begin with a digit, or are `-`, is
    /// aligned to the right, others to the left.
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table {
            headings: headings.into_iter().map(S::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a line; cells without a heading are not shown.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(S::into).collect());
    }

    /// The table as text, a newline after each line, no spaces before one.
    pub(crate) fn render(&self) -> String {
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let columns: Vec<(usize, bool)> = self
            .headings
            .iter()
            .enumerate()
            .map(|(column, heading)| {
                let cells: Vec<String> = self.rows.iter().map(|row| cell(row, column)).collect();
                let width = cells
                    .iter()
                    .chain([heading])
                    .map(|text| text.chars().count())
                    .max();
                let number = |text: &String| text == "-" || text.starts_with(char::is_numeric);
                (
                    width.unwrap_or(0),
                    !cells.is_empty() && cells.iter().all(number),
                )
            })
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let mut line = String::new();
            for (column, &(width, right)) in columns.iter().enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let cell = cell(row, column);
                line += &match right {
                    true => format!("{gap}{cell:>width$}"),
                    false => format!("{gap}{cell:<width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
