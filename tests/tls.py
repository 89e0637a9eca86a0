"""Certificates for tests: an authority, what it signed, and a stranger; and the server's configuration with them."""

import datetime
import ipaddress

import pytest


def certificate(name, issuer=None, issuer_key=None):
    """(certificate, key) for the host `name`; without an issuer an authority that signs itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
                if name == "localhost"
                else [x509.DNSName(name)]
            ),
            critical=False,
        )
        .sign(issuer_key or key, hashes.SHA256())
    )
    return made, key


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """{name: (path of the certificate, path of the key)}: root, localhost and other.example and client (signed by root), stranger."""
    from cryptography.hazmat.primitives import serialization

    folder, found = tmp_path_factory.mktemp("pems"), {}
    root, root_key = certificate("root")
    made = {"root": (root, root_key), "stranger": certificate("stranger")}
    made |= {name: certificate(name, root, root_key) for name in ("localhost", "other.example", "client")}
    for name, (one, key) in made.items():
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        paths[0].write_bytes(one.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        found[name] = tuple(map(str, paths))
    return found


def ssl_config(path, pems, name, client_verify):
    """The flag of a server with the certificate `name`; the configuration is written to `path`."""

    def quoted(file):
        return open(file).read().replace("\n", "\\n")

    path.write_text(
        f'server_key: "{quoted(pems[name][1])}"\nserver_cert: "{quoted(pems[name][0])}"\n'
        + f'custom_ca: "{quoted(pems["root"][0])}"\nclient_verify: {str(client_verify).lower()}\n'
    )
    return f"--ssl_config_file={path}"
