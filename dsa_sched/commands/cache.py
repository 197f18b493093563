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
    ($XDG_CACHE_HOME/dsa-sched/builds, or ~/.cache/dsa-sched/builds). The key of an entry follows from the model's
    bytes, the chip, the options and the compiler itself, so that nothing is compiled twice. The figures of a build
    (its times and its explanation) are kept with it, so that nothing is timed twice. When the cache grows too large,
    the entries that were not used for the longest time are removed. With --no-cache these commands neither read nor
    fill it. The environment variable DSA_SCHED_BUILD_CACHE names another folder; its value off turns the cache off.
    """
    from dsa_sched.builds.build_cache import user_cache
    from dsa_sched.builds.kept_figures import figures_cache
    from hw_models.errors import UserError, size_text

    found = user_cache()
    if found.folder is None:
        change = "set XDG_CACHE_HOME or DSA_SCHED_BUILD_CACHE"
        raise UserError("build cache", needs="a folder", has="none", change=change)
    figures = figures_cache(found)
    count, size = found.entries(), size_text(found.size_bytes() + figures.size_bytes())
    builds = f"{count} build" + "s" * (count != 1)
    if clear:
        found.clear()
        figures.clear()
        click.echo(f"{found.folder}: removed {builds}, {size}")
        return
    click.echo(f"{found.folder}: {builds}, {size} of at most {size_text(found.most_bytes)}")
