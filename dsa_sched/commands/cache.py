"""`dsa-sched cache`: what the build cache holds, and clearing it."""

from __future__ import annotations

import click


@click.command(short_help="Show or clear the cache of compiled models.")
@click.option("--clear", is_flag=True, help="Remove all entries.")
def cache(clear: bool) -> None:
    """Show how large the build cache is, or clear it.

    \b
    dsa-sched cache
    dsa-sched cache --clear

    compile, explain, verify, time and timeline keep what they compile in the user's cache folder
    ($XDG_CACHE_HOME/dsa-sched/builds, or ~/.cache/dsa-sched/builds), by the model's bytes, the chip, the options and
    the compiler itself, so that the same thing is compiled once. When it grows too large, what was not used for longest
    goes. --no-cache of those commands neither reads nor fills it. The variable DSA_SCHED_BUILD_CACHE of the environment
    names another folder; off is none.
    """
    from dsa_sched.builds.build_cache import BuildCache
    from hw_models.errors import UserError, size_text

    found = BuildCache.of_user()
    if found is None:
        raise UserError(
            "build cache", needs="a folder", has="none", change="set XDG_CACHE_HOME or DSA_SCHED_BUILD_CACHE"
        )
    if clear:
        before = found.clear()
        click.echo(f"{before.folder}: removed {before.entries} builds, {size_text(before.bytes)}")
        return
    size = found.size()
    click.echo(
        f"{size.folder}: {size.entries} builds, {size_text(size.bytes)} of at most {size_text(found.most_bytes)}"
    )
