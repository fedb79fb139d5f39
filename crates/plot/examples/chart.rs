//! Draws the loads of two links under two hash policies: `cargo run -p raddle-plot --example chart --
//! FILE.svg`, or `.png`.

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1) {
        Some(name) => match draw(&name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("chart: {e}");
                ExitCode::FAILURE
            }
        },
        None => {
            eprintln!("usage: chart FILE.svg, or FILE.png");
            ExitCode::from(2)
        }
    }
}

fn draw(name: &str) -> Result<(), Box<dyn Error>> {
    let path = raddle_plot::file(name)?;
    let links = |loads: [f64; 2]| {
        let names = ["spine1", "spine2"].map(str::to_owned);
        names.into_iter().zip(loads).collect()
    };
    let groups = [
        ("L3 policy".to_owned(), links([940.0, 0.0])),
        ("L4 policy".to_owned(), links([510.0, 430.0])),
    ];
    raddle_plot::bars(&path, "What each link carries", &groups, "Mbit/s")?;
    Ok(())
}
