"""SVG for the pictures in docs/images: words, and the paper under all that is drawn. Pure."""

WIDTH = 720


def text(
    x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal", colour: str = "#0f172a"
) -> str:
    safe = words.replace("&", "&amp;").replace("<", "&lt;")
    style = f'font-size="12" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{safe}</text>'


def picture(height: float, title: str, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'font-family="system-ui, sans-serif" role="img"><title>{title}</title>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
