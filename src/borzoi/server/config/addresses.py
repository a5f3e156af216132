"""`host:port` texts: taking them apart, and telling whether other machines can reach them."""

import ipaddress


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`; the brackets of an IPv6 address are removed."""
    host, separator, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if (
        not separator
        or not host
        or (":" in host) is not bracketed
        or any(character.isspace() for character in host)
        or not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535)
    ):
        raise ValueError(f'"{text}" is not host:port; write for example "127.0.0.1:8090"')
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`; a name may be any machine's."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
