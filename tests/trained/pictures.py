"""Drawn pictures as float32 of [0, 255], [height, width, 3]: lines of text, a page of it, a face, shapes."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

__all__ = ["face", "normalised", "page", "shapes", "text_line"]

Picture = npt.NDArray[np.float32]
INK, PAPER, SKIN = (20, 20, 30), (245, 244, 238), (224, 184, 156)


def _font(size: int) -> ImageFont.FreeTypeFont:
    """A font that matplotlib ships."""
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def _array(image: Image.Image) -> Picture:
    return np.asarray(image, dtype=np.float32)


def text_line(text: str, height: int, width: int) -> Picture:
    """One line as a detector cuts it out: as high as the picture."""
    image = Image.new("RGB", (width, height), PAPER)
    ImageDraw.Draw(image).text((height // 8, height // 10), text, fill=INK, font=_font(round(height * 0.66)))
    return _array(image.filter(ImageFilter.GaussianBlur(0.6)))


def page(lines: tuple[tuple[int, int, int, str], ...], height: int, width: int, turns: int = 0) -> Picture:
    """Text by left, top, size; the page turned by quarters to the left."""
    image = Image.new("RGB", (width, height), PAPER)
    for left, top, size, text in lines:
        ImageDraw.Draw(image).text((left, top), text, fill=INK, font=_font(size))
    return np.ascontiguousarray(np.rot90(_array(image.filter(ImageFilter.GaussianBlur(0.5))), turns))


def face(height: int, width: int, places: tuple[tuple[int, int, int], ...]) -> Picture:
    """Faces by centre and half width: a head with hair, eyes with brows, nose, mouth, shaded from the left."""
    image = Image.new("RGB", (width, height), (96, 120, 140))
    draw = ImageDraw.Draw(image)
    for x, y, r in places:
        draw.ellipse((x - 2 * r, y + r, x + 2 * r, y + 5 * r), fill=(60, 60, 90))
        draw.rectangle((x - r // 3, y + r, x + r // 3, y + 1.6 * r), fill=(205, 165, 138))
        draw.ellipse((x - 1.1 * r, y - 1.5 * r, x + 1.1 * r, y + 0.8 * r), fill=(62, 44, 32))
        draw.ellipse((x - r, y - 1.25 * r, x + r, y + 1.35 * r), fill=SKIN)
        draw.chord((x - 1.02 * r, y - 1.4 * r, x + 1.02 * r, y + 0.4 * r), 195, 345, fill=(62, 44, 32))
        for side in (-1, 1):
            eye = x + side * 0.4 * r
            draw.ellipse((eye - 0.2 * r, y - 0.25 * r, eye + 0.2 * r, y - 0.02 * r), fill=(250, 250, 250))
            draw.ellipse((eye - 0.09 * r, y - 0.24 * r, eye + 0.09 * r, y - 0.03 * r), fill=(50, 34, 26))
            brow = (eye - 0.25 * r, y - 0.38 * r, eye + 0.25 * r, y - 0.4 * r)
            draw.line(brow, fill=(70, 50, 38), width=max(1, r // 12))
        draw.polygon(((x, y - 0.1 * r), (x - 0.16 * r, y + 0.4 * r), (x + 0.16 * r, y + 0.4 * r)), fill=(206, 160, 134))
        draw.ellipse((x - 0.38 * r, y + 0.62 * r, x + 0.38 * r, y + 0.88 * r), fill=(176, 84, 80))
        draw.line((x - 0.36 * r, y + 0.75 * r, x + 0.36 * r, y + 0.75 * r), fill=(120, 50, 50), width=max(1, r // 16))
    shaded = _array(image.filter(ImageFilter.GaussianBlur(max(1, height / 120))))
    return (shaded * np.linspace(1.05, 0.8, width, dtype=np.float32)[:, None]).clip(0, 255)


def shapes(height: int, width: int) -> Picture:
    """No text and no face: discs and bars."""
    image = Image.new("RGB", (width, height), (90, 140, 90))
    draw = ImageDraw.Draw(image)
    draw.ellipse((width // 8, height // 6, width // 2, height // 2), fill=(220, 60, 40))
    draw.rectangle((width // 2, height // 2, width - width // 8, height - height // 8), fill=(40, 60, 200))
    draw.line((0, height, width, 0), fill=(240, 240, 60), width=max(2, height // 20))
    return _array(image.filter(ImageFilter.GaussianBlur(1)))


def normalised(picture: Picture, mean: tuple[float, ...] = (0.5,) * 3, std: tuple[float, ...] = (0.5,) * 3) -> Picture:
    """As networks read it: [1, 3, height, width] of about [-1, 1]."""
    scaled = (picture / 255 - np.array(mean)) / np.array(std)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[None], dtype=np.float32)
