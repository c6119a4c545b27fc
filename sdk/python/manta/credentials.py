"""Who a process is, and whom it lets in: the token file, and certificates where the cluster has them.

A token file holds one line: `TOKEN`, which then is everyone's, or `TOKEN admin=DIGEST node=DIGEST ...`: this process's
own token and the SHA-256 digests of each role's (common/rpc/keys.h). Over loopback connections are plain text; beyond it
both sides show a certificate of the cluster's CA out of the folder MANTA_TLS_DIR.
"""

import hashlib
import hmac
import os
import stat

import grpc

TOKEN_KEY = "x-manta-token"
CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # at most once: only callers know what may be sent again
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", 1 << 30),
    ("grpc.max_metadata_size", 64 << 10),
]


class Keys:
    """What this process shows, and the roles of those who show something to it."""

    def __init__(self, line):
        words = line.split()
        if not words:
            raise ValueError("there is no token")
        self.token = words[0]
        self._digests = []
        for word in words[1:]:
            role, _, digest = word.partition("=")
            if len(digest) != 64:
                raise ValueError("a word after the token is no ROLE=DIGEST")
            self._digests.append((role, digest))

    @classmethod
    def from_file(cls, path):
        mode = os.stat(path)
        others = stat.S_IMODE(mode.st_mode) & 0o077
        mounted = others == 0o040 and mode.st_uid == 0 and os.geteuid() != 0  # a container platform's secret
        if others and not mounted:
            raise PermissionError(f"{path}: others can read the token; expected mode 0600")
        with open(path, encoding="ascii") as file:
            return cls(file.read(4096))

    def roles_of(self, token):
        if not self._digests:
            return {"admin", "node", "worker", "reader"} if hmac.compare_digest(token, self.token) else set()
        digest = hashlib.sha256(token.encode()).hexdigest()
        return {role for role, expected in self._digests if hmac.compare_digest(digest, expected)}


def is_loopback(address):
    return address.startswith(("127.", "[::1]:", "localhost:"))


def _tls_files(role):
    folder = os.environ.get("MANTA_TLS_DIR", "")
    if not folder:
        return None
    parts = []
    for name in ("ca.pem", role + ".pem", role + ".key"):
        with open(os.path.join(folder, name), "rb") as file:
            parts.append(file.read())
    return parts


def server_credentials(address, role="worker"):
    files = _tls_files(role)
    if files is not None:
        ca, certificate, key = files
        return grpc.ssl_server_credentials([(key, certificate)], root_certificates=ca, require_client_auth=True)
    if not is_loopback(address):
        raise ValueError(f"refusing to listen on {address}: beyond loopback certificates are needed (MANTA_TLS_DIR)")
    return grpc.local_server_credentials(grpc.LocalConnectionType.LOCAL_TCP)


def open_channel(address):
    if os.environ.get("MANTA_TLS_DIR", ""):
        # The certificates name roles, not hosts; gRPC's Python library can check nothing but a host's name.
        raise NotImplementedError("clients in Python do not speak TLS yet: use the C++ client where MANTA_TLS_DIR is set")
    if not is_loopback(address):
        raise ValueError(f"refusing to send the token to {address}: without TLS only loopback addresses are reached")
    return grpc.secure_channel(address, grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP), CHANNEL_OPTIONS)
