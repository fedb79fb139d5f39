#![doc = include_str!("../README.md")]

pub mod outside;

/// Spaces between columns.
const GAP: usize = 2;

/// A table: a line of headings, then lines of cells; columns two spaces apart.
#[derive(Clone, Debug, Default)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings. A column whose cells all begin with a digit, or are `-`, is
    /// aligned to the right, others to the left.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table {
            headings: headings.into_iter().map(S::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a line; cells without a heading are not shown.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(S::into).collect());
    }

    /// Leaves out whole columns until the table is at most so wide. Those that are `needed` come first, in that
    /// order, as long as there is room for each; the first of them stays at any width. Returns the headings of
    /// those that were left out.
    pub fn fit(&mut self, width: usize, needed: &[&str]) -> Vec<String> {
        let widths = self.widths();
        let place = |name: &&str| self.headings.iter().position(|heading| heading == name);
        let mut order: Vec<usize> = needed.iter().filter_map(place).collect();
        order.extend(
            (0..self.headings.len()).filter(|column| !needed.contains(&&*self.headings[*column])),
        );
        let mut keep = vec![false; self.headings.len()];
        let mut used = 0;
        for column in order {
            let more = widths[column] + if used == 0 { 0 } else { GAP };
            if used == 0 || used + more <= width {
                used += more;
                keep[column] = true;
            }
        }
        let left_out = self.headings.iter().zip(&keep).filter(|(_, keep)| !**keep);
        let left_out = left_out.map(|(heading, _)| heading.clone()).collect();
        for row in std::iter::once(&mut self.headings).chain(&mut self.rows) {
            let mut columns = keep.iter();
            row.retain(|_| columns.next().copied().unwrap_or(false));
        }
        left_out
    }

    /// How wide each column is.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let all = std::iter::once(&self.headings).chain(&self.rows);
            let cells = all.filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        (0..self.headings.len()).map(width).collect()
    }

    /// The table as text, a newline after each line, no spaces before one.
    pub fn render(&self) -> String {
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let columns: Vec<(usize, bool)> = self
            .widths()
            .into_iter()
            .enumerate()
            .map(|(column, width)| {
                let cells: Vec<String> = self.rows.iter().map(|row| cell(row, column)).collect();
                let number = |text: &String| text == "-" || text.starts_with(char::is_numeric);
                (width, !cells.is_empty() && cells.iter().all(number))
            })
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let mut line = String::new();
            for (column, &(width, right)) in columns.iter().enumerate() {
                let gap = " ".repeat(if column == 0 { 0 } else { GAP });
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
