"""Made-up secrets and personal data of each kind, put together here so that no scanner finds them."""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """A text with a value in it that must not stay."""

    kind: str
    text: str
    value: str


def _of(kind: str, before: str, *pieces: str, behind: str = "") -> Planted:
    value = "".join(pieces)
    return Planted(kind, before + value + behind, value)


LETTERS = "abcdefghijklmnopqrstuvwxyz"
PEM = "\n".join(
    (
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "MIIEowIBAAKCAQEAx7",
        "Zq4m1c+/9=",
        "-----END RSA PRIVATE KEY-----",
    )
)
PLANTED = (
    _of("EMAIL", "write to ", "jane.roe@", "corp-mail.example"),
    _of("EMAIL", "<", "j+tag_1@", "sub.host.co.uk", behind=">"),
    _of("API_KEY", "key ", "sk-", "ant-api03-", "Ab12" * 8),
    _of("API_KEY", "key ", "sk-", "proj-", "Zx90" * 8),
    _of("API_KEY", "", "AK", "IA", "QWERTYUIOP123456"),
    _of("API_KEY", "", "gh", "p_", "A1b2C3d4" * 5),
    _of("API_KEY", "", "github_", "pat_", "A1b2C3d4" * 5),
    _of("API_KEY", "", "xox", "b-", "123456789012-123456789012-", LETTERS),
    _of("API_KEY", "", "AI", "za", "Sy1234567" * 4),
    _of("API_KEY", "", "hf", "_", LETTERS, "ABCDEF"),
    _of("API_KEY", "", "glpat", "-", "Ab1" * 8),
    _of("API_KEY", "", "pk-", "lf-", "12345678-1234-1234-1234-123456789012"),
    _of("API_KEY", "", "sk-", "lf-", "12345678-1234-1234-1234-123456789012"),
    _of("API_KEY", "", "sk", "_live_", "A1b2C3d4" * 3),
    _of("API_KEY", "", "SG", ".", "A1b2C3d4e5F6g7H8i9J0kl.", "A1b2C3d4e5F6g7H8i9J0" * 2, "abc"),
    _of("JWT", "", "eyJ", "hbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjMifQ.", "dozjgNryP4J3jVm"),
    _of("SECRET", "Authorization: Bearer ", "f00d", "BAD5" * 6),
    _of("SECRET", "Authorization: Basic ", "dXNlcjpw", "YXNzd29yZA=="),
    _of("PASSWORD", "postgres://app:", "s3cr3t", "-pw", behind="@db.internal:5432/x"),
    _of("PASSWORD", "https://me:", "tr0ub4dor", behind="@site.example/x"),
    _of("SECRET", 'password = "', "hunter", "22", behind='"'),
    _of("SECRET", "DB_PASSWORD=", "let", "mein", behind="\n"),
    _of("SECRET", "export SERVICE_TOKEN=", "q1w2e3r4", "t5y6"),
    _of("SECRET", "AWS_SECRET_ACCESS_KEY=", "wJalrXUtnFEMI", "/K7MDENG/bPxRfiCYz1"),
    _of("SECRET", 'client_secret: "', "8f14e45f", "ceea167a", behind='"'),
    _of("SECRET", "https://x.example/y?access_token=", "abc123", "def456", behind="&z=1"),
    _of("SECRET", "Server=db;User Id=app;Password=", "Pa55w0rd", behind=";"),
    _of("SECRET", "tool --password ", "Pa55w0rd1", behind=" x"),
    _of("WEBHOOK", "https://discord.com/api/webhooks/", "123456789/", "abc-DEF_ghi"),
    _of(
        "WEBHOOK",
        "",
        "https://hooks.slack.com/services/",
        "T0AAAAAAA/B0BBBBBBB/",
        "c1d2e3f4g5h6i7j8k9l0mnop",
    ),
    _of("USER", "cd /Users/", "janeroe7", behind="/code"),
    _of("USER", "cd /home/", "janeroe7", behind="/code"),
    _of("USER", "cd C:\\Users\\", "janeroe7", behind="\\code"),
    _of("USER", "projects/-Users-", "janeroe7", behind="-code/x.jsonl"),
    _of("PHONE", "call ", "+49 30 ", "901820"),
    _of("PHONE", "call ", "(415) 555-", "2671"),
    _of("PHONE", "Tel.: ", "030/1234", "5678"),
    _of("CARD", "card ", "4242 4242 ", "4242 4242"),
    _of("CARD", "card ", "378282246", "310005"),
    _of("IBAN", "to ", "DE89 3704 0044 ", "0532 0130 00"),
    _of("SSN", "ssn ", "536-22-", "8726"),
    _of("IP", "from ", "93.184.", "216.34", behind=":443"),
    _of("IP", "from ", "2606:4700:", "4700::1111"),
    Planted("PRIVATE_KEY", PEM, "MIIEowIBAAKCAQEAx7"),
)
ORDINARY = (
    "max_tokens: 4096, input_tokens=3, token = next_token()",
    'def f(token: str, password: str | None = None) -> "secret": ...',
    'api_key=os.getenv("SERVICE_KEY"), headers["Authorization"] = f"Bearer {token}"',
    "password: ${{ secrets.DEPLOY_PW1 }} and ${API_KEY} and $TOKEN",
    'tokenizer="cl100k_base" token_type="bearer" secretName: my-secret',
    "550e8400-e29b-41d4-a716-446655440000 da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "2026-06-01 12:30:45.123456 1767225600 1767225600000000 3.14159265358979",
    "Chrome/120.0.6099.109 v1.2.3.4 ==2.0.0.1 10.0.0.1 192.168.1.1 127.0.0.1:8080 ::1",
    "git@github.com:owner/repo lodash@4.17.21 icon@2x.png @decorator std::abc::def",
    "https://site.example/home/products src/home/index.tsx /home/user/x /Users/Shared/y",
    "task-1234567890123456 risk-assessment-0123456789abcdef",
    "@@ -1767225600,3 +1767225601,5 @@ 1234567890123456 100 200 3000",
    "-----BEGIN CERTIFICATE-----",
    "PWD=/srv/app1 and pwd: /srv/app1",
)
