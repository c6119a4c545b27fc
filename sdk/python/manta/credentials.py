"""Who a process is, and whom it lets in: the token file, and certificates where the cluster has them.

A token file holds one line: `TOKEN`, which then is everyone's, or `TOKEN admin=DIGEST node=DIGEST ...`: this process's
own token and the SHA-256 digests of each role's (common/rpc/keys.h). Over loopback connections are plain text; beyond it
both sides show a certificate of the cluster's CA out of the folder MANTA_TLS_DIR.
"""

import hashlib
import hmac
import os
import re
import ssl
import stat
import threading
import time

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


def _is_mounted(mode):
    """A container platform's secret: root's, and readable by the group."""
    return stat.S_IMODE(mode.st_mode) & 0o077 == 0o040 and mode.st_uid == 0 and os.geteuid() != 0


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
        if stat.S_IMODE(mode.st_mode) & 0o077 and not _is_mounted(mode):
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


class Certificates:
    """A role's files in MANTA_TLS_DIR, read as one: a certificate and its key are replaced one after the other."""

    PATIENCE = 1.0  # seconds in which the second of them follows the first

    def __init__(self, folder, role):
        self._paths = [os.path.join(folder, name) for name in ("ca.pem", role + ".pem", role + ".key")]
        self._lock = threading.Lock()
        self._stamp, self._parts = None, None
        self.current()

    @classmethod
    def from_environment(cls, role):
        """None where the cluster has no certificates."""
        folder = os.environ.get("MANTA_TLS_DIR", "")
        return cls(folder, role) if folder else None

    def current(self):
        """(what changes with the files, the CA's, the certificate's and the key's PEM): the newest that fit."""
        with self._lock:
            until = time.monotonic() + self.PATIENCE
            while True:
                try:
                    stamp = tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in map(os.stat, self._paths))
                    if stamp != self._stamp:
                        self._parts, self._stamp = self._read(), stamp
                    return self._stamp, *self._parts
                except (OSError, ValueError):
                    if self._parts is not None:  # those that were there go on; what is wrong shows at the next start
                        return self._stamp, *self._parts
                    if time.monotonic() > until:
                        raise
                time.sleep(0.01)

    def job(self):
        """Of the certificate's URI, manta://JOB/ROLE/NAME."""
        return _uri_in(ssl.PEM_cert_to_DER_cert(self.current()[2].decode("ascii")))[0]

    def _read(self):
        mode = os.stat(self._paths[2])
        if stat.S_IMODE(mode.st_mode) & 0o077 and not _is_mounted(mode):
            raise PermissionError(f"{self._paths[2]}: others can read the private key; expected mode 0600")
        parts = self._bytes()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self._paths[0])
            context.load_cert_chain(self._paths[1], self._paths[2])
        except ssl.SSLError as error:
            raise ValueError(f"{self._paths[2]} is not the key of {self._paths[1]}, or {self._paths[0]} holds no "
                             f"certificate: {error}") from error
        if self._bytes() != parts:
            raise ValueError(f"{self._paths[1]} is being replaced")
        return parts

    def _bytes(self):
        parts = []
        for path in self._paths:
            with open(path, "rb") as file:
                parts.append(file.read(1 << 20))
        return parts


def _uri_in(der):
    """(JOB, ROLE) of the name that stands in a certificate as plain text."""
    found = re.search(rb"manta://([A-Za-z0-9._-]{1,64})/(admin|node|worker|reader)/", der)
    if found is None:
        raise ValueError("the certificate names no job (URI manta://JOB/ROLE/NAME expected)")
    return found[1].decode(), found[2].decode()


def peer_role(certificates, auth_context):
    """The role that the caller's certificate gives it; None where it is not of this job."""
    for values in auth_context.values():
        for value in values:
            if isinstance(value, bytes) and value.startswith(b"manta://"):
                try:
                    job, role = _uri_in(value)
                except ValueError:
                    return None
                return role if job == certificates.job() else None
    return None


def server_credentials(address, certificates):
    if certificates is not None:

        def configuration():
            _, ca, certificate, key = certificates.current()
            return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)

        return grpc.dynamic_ssl_server_credentials(configuration(), configuration, require_client_authentication=True)
    if not is_loopback(address):
        raise ValueError(f"refusing to listen on {address}: beyond loopback certificates are needed (MANTA_TLS_DIR)")
    return grpc.local_server_credentials(grpc.LocalConnectionType.LOCAL_TCP)


def open_channel(address, certificates, role):
    """To a server of that role. gRPC in Python can check nothing but a host's name: the certificates of `manta
    init-certs` carry one that says job and role."""
    options = list(CHANNEL_OPTIONS)
    if certificates is None:
        if not is_loopback(address):
            raise ValueError(f"refusing to send the token to {address}: without TLS (MANTA_TLS_DIR) only loopback "
                             "addresses are reached")
        credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
    else:
        _, ca, certificate, key = certificates.current()
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        options.append(("grpc.ssl_target_name_override", f"{role}.{certificates.job()}.manta"))
    return grpc.secure_channel(address, credentials, options)
