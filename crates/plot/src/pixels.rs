//! Charts as PNG files: pixels, and text from glyphs that the program brings along, so that no font has
//! to be installed.

use std::convert::Infallible;

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontTransform,
};

/// Font sizes from here on have the larger glyphs.
const LARGE: f64 = 20.0;
/// Stands for characters that there is no glyph for.
const UNKNOWN: char = '?';

/// A drawing surface: red, green and blue of each pixel, in rows.
pub(super) struct Pixels<'a> {
    size: (u32, u32),
    rgb: &'a mut [u8],
}

/// Room for so many pixels, white.
pub(super) fn white(size: (u32, u32)) -> Vec<u8> {
    vec![255; size.0 as usize * size.1 as usize * 3]
}

/// The picture as the contents of a PNG file.
pub(super) fn encode(size: (u32, u32), rgb: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(file)
}

impl<'a> Pixels<'a> {
    /// Draws on these pixels, which are as many as the size says.
    pub(super) fn new(size: (u32, u32), rgb: &'a mut [u8]) -> Pixels<'a> {
        Pixels { size, rgb }
    }

    /// Lays a colour over a pixel; nothing outside of the picture.
    fn blend(&mut self, (x, y): BackendCoord, (red, green, blue): (u8, u8, u8), alpha: f64) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else {
            return;
        };
        if x >= self.size.0 || y >= self.size.1 {
            return;
        }
        let at = (y as usize * self.size.0 as usize + x as usize) * 3;
        let pixel = self.rgb.iter_mut().skip(at).take(3);
        for (below, over) in pixel.zip([red, green, blue]) {
            let mixed = f64::from(*below) * (1.0 - alpha) + f64::from(over) * alpha;
            *below = mixed.round() as u8;
        }
    }
}

fn height(size: f64) -> RasterHeight {
    match size < LARGE {
        true => RasterHeight::Size16,
        false => RasterHeight::Size24,
    }
}

/// Width and height of a text in pixels.
fn extent(text: &str, size: f64) -> (i32, i32) {
    let height = height(size);
    let width = get_raster_width(FontWeight::Regular, height) * text.chars().count();
    (width as i32, height.val() as i32)
}

impl DrawingBackend for Pixels<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Infallible>> {
        Ok(())
    }

    fn draw_pixel(
        &mut self,
        point: BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        self.blend(point, color.rgb, color.alpha);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Infallible>> {
        let (wide, high) = extent(text, style.size());
        let anchor = style.anchor();
        let left = match anchor.h_pos {
            HPos::Left => 0,
            HPos::Center => -wide / 2,
            HPos::Right => -wide,
        };
        let top = match anchor.v_pos {
            VPos::Top => 0,
            VPos::Center => -high / 2,
            VPos::Bottom => -high,
        };
        let turn = |right: i32, down: i32| match style.transform() {
            FontTransform::None => (x + right, y + down),
            FontTransform::Rotate90 => (x - down, y + right),
            FontTransform::Rotate180 => (x - right, y - down),
            FontTransform::Rotate270 => (x + down, y - right),
        };
        let color = style.color();
        let mut right = left;
        for character in text.chars() {
            let glyph = |c| get_raster(c, FontWeight::Regular, height(style.size()));
            let Some(glyph) = glyph(character).or_else(|| glyph(UNKNOWN)) else {
                continue;
            };
            for (down, row) in (top..).zip(glyph.rows()) {
                for (across, ink) in (right..).zip(row) {
                    let alpha = f64::from(*ink) / 255.0 * color.alpha;
                    self.blend(turn(across, down), color.rgb, alpha);
                }
            }
            right += glyph.width() as i32;
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (wide, high) = extent(text, style.size());
        let (wide, high) = (wide.unsigned_abs(), high.unsigned_abs());
        Ok(match style.transform() {
            FontTransform::None | FontTransform::Rotate180 => (wide, high),
            FontTransform::Rotate90 | FontTransform::Rotate270 => (high, wide),
        })
    }
}
