"""Tables of a page that are HTML from the start; every text in them is escaped."""

from __future__ import annotations

from html import escape

from dsa_sched.report.listing import Listing


def listing_html(listing: Listing) -> str:
    """A table with its title and notes; a row about a layer says so, and the page's script shows that layer on a
    click."""
    title = f"<h2>{escape(listing.title)}</h2>" if listing.title else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in listing.notes)
    return title + (_table(listing) if listing.rows else "") + notes


def _table(listing: Listing) -> str:
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in listing.headings)
    subjects = listing.subjects or ("",) * len(listing.rows)
    rows = "".join(_row(row, subject) for row, subject in zip(listing.rows, subjects, strict=True))
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(row: tuple[str, ...], subject: str) -> str:
    about = f' data-layer="{escape(subject)}"' if subject else ""
    return f"<tr{about}>" + "".join(f'<td title="{escape(text)}">{escape(text)}</td>' for text in row) + "</tr>"
