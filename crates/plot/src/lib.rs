#![doc = include_str!("../README.md")]

mod pixels;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pixels::Pixels;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (960, 540);
/// Space above the plot for title and legend, in pixels.
const HEAD: u32 = 84;
/// Space below the plot for the labels of groups, in pixels.
const FOOT: u32 = 60;
/// Share of a group's width that its bars take.
const FILL: f64 = 0.8;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Okabe and Ito's colours, which people with any colour vision can tell apart.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x8c, 0x8c, 0x8c),
];

/// Why there is no chart.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be written.
    #[error("cannot write the chart {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The values cannot be drawn.
    #[error("cannot draw the chart {}: {reason}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
}

/// A file's name says no way to draw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a chart is drawn as SVG or PNG: name a file that ends in .svg or .png")]
pub struct NotAChart;

/// The file of a chart by its name, such as a command line has it: what it ends in says how it is drawn.
///
/// # Errors
/// [`NotAChart`] where it ends in neither `.svg` nor `.png`.
pub fn file(name: &str) -> Result<PathBuf, NotAChart> {
    let path = PathBuf::from(name);
    let kind = path.extension().map(|end| end.to_ascii_lowercase());
    match kind.as_ref().and_then(|kind| kind.to_str()) {
        Some("svg" | "png") => Ok(path),
        _ => Err(NotAChart),
    }
}

/// A group of bars: its label, of one or two lines, and the value of each series that it has.
pub type Group = (String, Vec<(String, f64)>);
/// A line: its name and its points.
pub type Line = (String, Vec<(f64, f64)>);
type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Canvas<B> = DrawingArea<B, Shift>;
/// What a surface of the kind `B` says to being drawn on.
type Drawn<B, T = ()> = Result<T, DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// What can be drawn on any surface.
trait Draw {
    fn draw<B: DrawingBackend>(&self, root: &Canvas<B>) -> Drawn<B>;
}

/// Draws bars in groups, a colour for each series, to an SVG file, or to a PNG file where the name ends
/// in `.png`. `unit` is written beside the axis. Values must be finite and not negative.
///
/// # Errors
/// [`Error::Write`], and [`Error::Draw`] for values that cannot be drawn.
pub fn bars(path: &Path, title: &str, groups: &[Group], unit: &str) -> Result<(), Error> {
    let mut series: Vec<&str> = Vec::new();
    for (name, _) in groups.iter().flat_map(|(_, bars)| bars) {
        if !series.contains(&name.as_str()) {
            series.push(name);
        }
    }
    let values = groups
        .iter()
        .flat_map(|(_, bars)| bars.iter().map(|(_, value)| *value));
    let bars = Bars {
        title,
        groups,
        unit,
        series,
        top: ceiling(path, values)?,
    };
    write(path, &bars)
}

struct Bars<'a> {
    title: &'a str,
    groups: &'a [Group],
    unit: &'a str,
    series: Vec<&'a str>,
    top: f64,
}

impl Draw for Bars<'_> {
    fn draw<B: DrawingBackend>(&self, root: &Canvas<B>) -> Drawn<B> {
        let across = (0.0, self.groups.len().max(1) as f64);
        let mut chart = begin(root, self.title, &self.series, across, self.top, FOOT)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style((FONT, 14, &INK))
            .axis_desc_style((FONT, 15, &INK))
            .y_labels(6)
            .y_label_formatter(&|value| number(*value))
            .y_desc(self.unit)
            .draw()?;
        for (at, (label, bars)) in self.groups.iter().enumerate() {
            draw_group(root, &mut chart, at, label, bars, &self.series)?;
        }
        Ok(())
    }
}

/// Draws lines to an SVG or PNG file, as [`bars`]. Points must be finite, values not negative.
///
/// # Errors
/// [`Error::Write`], and [`Error::Draw`] for points that cannot be drawn.
pub fn lines(
    path: &Path,
    title: &str,
    lines: &[Line],
    x_unit: &str,
    y_unit: &str,
) -> Result<(), Error> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let top = ceiling(path, points().map(|(_, y)| *y))?;
    let xs = || points().map(|(x, _)| *x);
    if let Some(x) = xs().find(|x| !x.is_finite()) {
        return Err(Error::Draw {
            path: path.to_owned(),
            reason: format!("a point at {x}"),
        });
    }
    let first = xs().fold(f64::INFINITY, f64::min);
    let last = xs().fold(f64::NEG_INFINITY, f64::max);
    let range = if first < last {
        (first, last)
    } else {
        (0.0, 1.0)
    };
    let lines = Lines {
        title,
        lines,
        units: (x_unit, y_unit),
        range,
        top,
    };
    write(path, &lines)
}

struct Lines<'a> {
    title: &'a str,
    lines: &'a [Line],
    units: (&'a str, &'a str),
    range: (f64, f64),
    top: f64,
}

impl Draw for Lines<'_> {
    fn draw<B: DrawingBackend>(&self, root: &Canvas<B>) -> Drawn<B> {
        let names: Vec<&str> = self.lines.iter().map(|(name, _)| name.as_str()).collect();
        let mut chart = begin(root, self.title, &names, self.range, self.top, 0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style((FONT, 14, &INK))
            .axis_desc_style((FONT, 15, &INK))
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .x_desc(self.units.0)
            .y_desc(self.units.1)
            .draw()?;
        for (i, (_, points)) in self.lines.iter().enumerate() {
            let style = colour(i).stroke_width(2);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        }
        Ok(())
    }
}

fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// The value at the top of the axis: the greatest, with room for its label.
fn ceiling(path: &Path, values: impl Iterator<Item = f64>) -> Result<f64, Error> {
    let mut top = 0.0_f64;
    for value in values {
        if !value.is_finite() || value < 0.0 {
            let reason = format!("a value of {value}");
            return Err(Error::Draw {
                path: path.to_owned(),
                reason,
            });
        }
        top = top.max(value);
    }
    Ok(if top > 0.0 { top * 1.1 } else { 1.0 })
}

/// Three digits, or as many as a whole number has.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.2}"),
        size if size < 10.0 && value.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Draws and writes the file.
fn write(path: &Path, what: &impl Draw) -> Result<(), Error> {
    let png = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("png"));
    let drawn = if png { draw_png(what) } else { draw_svg(what) };
    let contents = drawn.map_err(|e| Error::Draw {
        path: path.to_owned(),
        reason: e.to_string(),
    })?;
    fs::write(path, contents).map_err(|source| Error::Write {
        path: path.to_owned(),
        source,
    })
}

/// The contents of a file, or why there are none.
type Contents = Result<Vec<u8>, Box<dyn std::error::Error>>;

fn draw_svg(what: &impl Draw) -> Contents {
    let mut svg = String::new();
    draw_on(SVGBackend::with_string(&mut svg, SIZE), what)?;
    Ok(svg.into_bytes())
}

fn draw_png(what: &impl Draw) -> Contents {
    let mut rgb = pixels::white(SIZE);
    draw_on(Pixels::new(SIZE, &mut rgb), what)?;
    Ok(pixels::encode(SIZE, &rgb)?)
}

fn draw_on<B: DrawingBackend>(surface: B, what: &impl Draw) -> Drawn<B> {
    let root = surface.into_drawing_area();
    root.fill(&WHITE)?;
    what.draw(&root)?;
    root.present()
}

/// Title, legend and the empty plot; `foot` pixels are left free below it.
fn begin<'a, B: DrawingBackend>(
    root: &Canvas<B>,
    title: &str,
    series: &[&str],
    x: (f64, f64),
    top: f64,
    foot: u32,
) -> Drawn<B, Chart<'a, B>> {
    let style = (FONT, 22).into_font().color(&INK);
    root.draw(&Text::new(title.to_owned(), (24, 16), style))?;
    let mut at = 24;
    for (i, name) in series.iter().enumerate() {
        let square = Rectangle::new([(at, 54), (at + 13, 67)], colour(i).filled());
        root.draw(&square)?;
        let style = (FONT, 15)
            .into_font()
            .color(&INK)
            .pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new((*name).to_owned(), (at + 19, 61), style))?;
        // Without a font we can only guess how wide the name is.
        at += 44 + 8 * name.chars().count() as i32;
    }
    ChartBuilder::on(root)
        .margin_top(HEAD)
        .margin_right(24)
        .margin_bottom(foot)
        .margin_left(8)
        .x_label_area_size(if foot == 0 { 48 } else { 0 })
        .y_label_area_size(72)
        .build_cartesian_2d(x.0..x.1, 0.0..top)
}

fn draw_group<B: DrawingBackend>(
    root: &Canvas<B>,
    chart: &mut Chart<'_, B>,
    at: usize,
    label: &str,
    bars: &[(String, f64)],
    series: &[&str],
) -> Drawn<B> {
    let width = FILL / bars.len().max(1) as f64;
    let centred = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Center, VPos::Bottom));
    for (i, (name, value)) in bars.iter().enumerate() {
        let left = at as f64 + (1.0 - FILL) / 2.0 + i as f64 * width;
        let right = left + width * 0.92;
        let style = colour(series.iter().position(|known| known == name).unwrap_or(0)).filled();
        let bar = Rectangle::new([(left, 0.0), (right, *value)], style);
        chart.draw_series([bar])?;
        let (x, y) = chart.backend_coord(&((left + right) / 2.0, *value));
        let style = centred((FONT, 13).into_font().color(&INK));
        root.draw(&Text::new(number(*value), (x, y - 3), style))?;
    }
    for (i, line) in label.lines().enumerate() {
        let (x, y) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
        let style = centred((FONT, 15).into_font().color(&INK));
        let place = (x, y + 26 + 20 * i as i32);
        root.draw(&Text::new(line.to_owned(), place, style))?;
    }
    Ok(())
}
