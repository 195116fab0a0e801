"""A shared credentials file of AWS, which tests renew while somebody uses it."""

from pathlib import Path


class CredentialsFile:
    """AWS's shared file with one session."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, key: str) -> None:
        """Puts a file with the session of this access key in its place, as tools that renew sessions do."""
        text = f"[default]\naws_access_key_id={key}\naws_secret_access_key=secret\naws_session_token=token-of-{key}\n"
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)
