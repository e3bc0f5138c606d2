"""Secrets and personal data as they are met in the wild, every one of them made up.

They are put together here, so that no scanner takes this file for a leak.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Secret:
    """What must not be read (*value*), and a text in which a service or a program might say it."""

    name: str
    value: str
    text: str


MIXED = "a1B2" * 8
HEX = "0a1b" * 8
CAPITALS = "A1B2" * 4
SIGNED = "eyJ" + "hbGciOiJIUzI1NiJ9" + "." + "eyJ" + "zdWIiOiI0MiJ9" + "." + "c2lnbmF0dXJl_-x"
ARMOUR = "-----BEGIN " + "RSA PRIVATE KEY-----"
BODY = "MIIEow" + "IBAAKCAQ" * 8
END = "-----END " + "RSA PRIVATE KEY-----"
WORD = "hunter" + "2!x"


def _said(name: str, value: str, text: str) -> Secret:
    return Secret(name, value, text.replace("§", value))


CORPUS: list[Secret] = [
    # Tokens that are known by how they begin.
    _said("openai", "sk-" + MIXED, "Incorrect API key provided: §. You can find your key in your account."),
    _said("openai project", "sk-" + "proj-" + MIXED, "the key § was revoked"),
    _said("anthropic", "sk-" + "ant-api03-" + MIXED, "invalid x-api-key (§)"),
    _said("stripe", "sk_" + "live_" + MIXED, "No such customer; key §"),
    _said("stripe test", "rk_" + "test_" + MIXED, "using § in production"),
    _said("stripe webhook", "whsec" + "_" + MIXED, "signature check with § failed"),
    _said("github", "gh" + "p_" + MIXED, "remote: § has no access"),
    _said("github fine grained", "github" + "_pat_" + MIXED, "remote: § has no access"),
    _said("gitlab", "glpat" + "-" + MIXED, "clone with § failed"),
    _said("slack", "xox" + "b-" + "12345-" + MIXED, "invalid_auth for §"),
    _said("slack app", "xapp" + "-1-" + MIXED, "invalid_auth for §"),
    _said("slack webhook", "T0AAA/B0BBB/" + MIXED, "POST https://hooks.slack.com/services/§ answered 404"),
    _said("discord webhook", "1234/" + MIXED, "POST https://discord.test/api/webhooks/§ answered 404"),
    _said("aws id", "AKIA" + CAPITALS, "The access key § does not exist"),
    _said("aws session id", "ASIA" + CAPITALS, "InvalidClientTokenId for §"),
    _said("aws secret", "wJ1" + "alrX/K7MD" * 4 + "+q9", "signed with §"),
    _said("google", "AI" + "za" + MIXED + "xyz", "API key not valid: §"),
    _said("google oauth", "ya29" + ".a0" + MIXED, "the grant § has expired"),
    _said("google client", "GOCSPX" + "-" + MIXED, "unauthorized_client §"),
    _said("hugging face", "hf" + "_" + MIXED, "401 for §"),
    _said("npm", "npm" + "_" + MIXED, "E401 with §"),
    _said("pypi", "pypi" + "-" + "AgEIcHlwaS5vcmc" + MIXED, "403 with §"),
    _said("sendgrid", "SG" + "." + MIXED + "." + MIXED, "The provided § is wrong"),
    _said("twilio", "SK" + HEX, "Authenticate as §"),
    _said("mailgun", "key" + "-" + HEX, "Forbidden for §"),
    _said("digitalocean", "dop" + "_v1_" + HEX + HEX, "Unable to authenticate §"),
    _said("shopify", "shpat" + "_" + HEX, "[API] Invalid §"),
    _said("databricks", "dapi" + HEX, "Invalid access with §"),
    _said("vault", "hvs" + "." + MIXED, "permission denied for §"),
    _said("groq", "gsk" + "_" + MIXED, "Invalid §"),
    _said("telegram", "12345678" + ":AA" + MIXED + "z", "GET https://api.telegram.test/bot§/getMe"),
    _said("unknown vendor", "Zq8" + "xT4vLm9" * 5, "refused §"),
    # Headers.
    _said("bearer", "abcdef." + MIXED[:9], "curl -H 'Authorization: Bearer §' failed"),
    _said("bearer alone", "q7" + "w8e9r0t1", "sent bearer § and got 401"),
    _said("basic", "dXNlcjpw" + "YXNzd29yZA==", "headers={'Authorization': 'Basic §'}"),
    _said("basic alone", "dXNlcjpwYXNz" + "d29yZA==", "tried Basic § first"),
    _said("digest", 'username="ada", response="' + HEX + '"', "Authorization: Digest §\nnext"),
    _said("bare authorization", WORD, "authorization: §"),
    _said("proxy", "cHJveHk6" + "cHc=", "Proxy-Authorization: Basic §"),
    _said("raw headers", "tok-" + WORD, "[(b'authorization', b'Bearer §'), (b'host', b'x.test')]"),
    _said("x-api-key", WORD, "x-api-key: §"),
    _said("cookie", "sid=" + HEX, "Cookie: §; theme=dark"),
    _said("set-cookie", "session=" + MIXED, "set-cookie: §; Path=/; HttpOnly"),
    _said("cookie in a dictionary", f'a="{WORD}"; b=2', "{'cookie': '§', 'host': 'x.test'}"),
    _said("cookie jar", "sid=" + WORD, "<RequestsCookieJar[<Cookie § for .x.test/>]>"),
    _said("jwt", SIGNED, "Signature verification failed for §"),
    _said("jwt cut off", SIGNED[:40], "could not decode §"),
    # Key material.
    _said("pem", f"{ARMOUR}\n{BODY}\n{END}", "cannot load §: bad decrypt"),
    _said("pem without an end", f"{ARMOUR}\n{BODY}", "cannot load §"),
    _said("pem in JSON", f"{ARMOUR}\\n{BODY}\\n{END}", '{"private": "§"}'),
    # Addresses with a login or a query.
    _said("postgres url", "ada:" + WORD, "could not connect to postgresql://§@db.test:5432/shop"),
    _said("redis url", ":" + "s3/cr#et", "redis://§@cache.test/0 refused"),
    _said("password with an at", "ada:p@" + WORD, "amqp://§@mq.test/v refused"),
    _said("token as user", "x" + HEX, "fatal: https://§@git.test/a.git"),
    _said("query", WORD, "GET https://x.test/v1?user=7&sort=§ answered 500"),
    _said("signed query", "aZ%2B9" + "%3D", "GET https://blob.test/c?se=2026&sig=§ answered 403"),
    _said("fragment", WORD, "https://x.test/cb#access_token=§"),
    _said("libpq dsn", WORD, "connection failed: host=db.test user=ada password=§ dbname=shop"),
    _said("ado connection string", "ab+c/d==", "Endpoint=sb://x.test/;SharedAccessKey=§;EntityPath=q"),
    _said("encoded url", "ada%3A" + WORD[:7], "next=postgresql%3A%2F%2F§%40db.test"),
    # Values that are known by their name.
    _said("yaml", WORD, "api_key: §"),
    _said("json", WORD, '{"token": "§", "id": 7}'),
    _said("nested json", WORD, r'{"body": "{\"password\":\"§\",\"id\":7}"}'),
    _said("twice nested json", WORD, r'{"a":"{\"b\":\"{\\\"secret\\\":\\\"§\\\"}\"}"}'),
    _said("quote in a value", 'ab\\"' + WORD, '{"passphrase": "§"}'),
    _said("repr of a dictionary", WORD, "{'client_secret': '§', 'id': 7}"),
    _said("repr of bytes", WORD, 'b\'{"password": "§"}\''),
    _said("bytes in a dictionary", WORD, "{b'api-key': b'§'}"),
    _said("keyword argument", WORD, "connect(host='x.test', password='§')"),
    _said("environment", WORD, "DATABASE_PASSWORD=§ PATH=/usr/bin"),
    _said("flag", WORD, "usage: tool --auth-token § --quiet"),
    _said("xml", WORD, "<user>7</user><password>§</password>"),
    _said("pairs", WORD, "[('password', '§'), ('id', '7')]"),
    _said("name and value", WORD, '{"name": "DB_PASSWORD", "value": "§"}'),
    _said("list", WORD, 'tokens: ["a", "§"]'),
    _said("form", WORD, "grant=x&client_secret=§&id=7"),
    _said("encoded form", WORD[:7], "body=client_secret%3D§%26id%3D7"),
    _said("pin", "0" + "481", "pin=§"),
    _said("key of a service", WORD, "openai_key=§"),
    _said("key in two words", WORD, "the encryption key: § was refused"),
    _said("aligned", WORD, "user             = ada\npassword         = §\nhost             = x.test"),
    _said("nested value", WORD, '{"passwords": {"list": ["x", []], "b": {"c": ["}"]}, "bob": "§"}, "id": 7}'),
    _said("indented value", WORD, '{\n  "passwords": {\n    "list": [],\n    "bob": "§"\n  }\n}'),
    _said("value in a call", WORD, "connect(password=Hidden('§'), host='x.test')"),
    _said("one-time code", "9137" + "75", "2FA code: §"),
    _said("login of curl", "ada:" + WORD, "curl -u § https://x.test failed"),
    _said("login as arguments", "ada:" + WORD, "Command '['curl', '-u', '§', 'https://x.test']' returned 22"),
    _said("sshpass", WORD, "Command '['sshpass', '-p', '§', 'ssh', 'x.test']' returned 255"),
    _said("mysql", WORD, "mysqldump -h x.test -p§ shop failed"),
    _said("oracle", WORD, "ORA-01017: cannot log on as scott/§@db"),
    _said("basic auth object", WORD, "cannot use HTTPBasicAuth('ada', '§')"),
    _said("random hex", "9f86d081" * 8, "refused §"),
    # People.
    _said("email", "ada.lovelace" + "+x@example.org", "550 §: no such user"),
    _said("encoded email", "ada%40" + "example.org", "GET /users/§ answered 404"),
    _said("escaped email", "ada\\u0040" + "example.org", '{"to": "§"}'),
    _said("email in html", "ada&#64;" + "example.org", "<p>§</p>"),
    _said("email in another script", "åda@" + "exämple.org", "550 §: no such user"),
    _said("phone", "+49 30 " + "1234567", "cannot call §"),
    _said("phone with zeros", "0049 30 " + "1234567", "cannot call §"),
    _said("national phone", "030/" + "12345678", "cannot call §"),
    _said("american phone", "(555) " + "123-4567", "cannot call §"),
    _said("phone by its name", "01511" + "2345678", '{"phone": "§"}'),
    _said("iban", "DE89 3704 " + "0044 0532 0130 00", "IBAN § IS CLOSED"),
    _said("iban without gaps", "GB82WEST" + "12345698765432", "no such account: §"),
    _said("card", "4111 1111 " + "1111 1111", "card § declined"),
    _said("card without gaps", "5555555555" + "554444", "card § declined"),
    _said("card after a word", "411111111" + "1111111", "charge_§ declined"),
    _said("american card", "3782 " + "822463 10005", "card § declined"),
    _said("ipv4", "203.0.113" + ".77", "too many requests from §."),
    _said("ipv4 with port", "203.0.113" + ".78", "refused by §:443"),
    _said("ipv6", "2001:db8:" + ":8a2e:370:7334", "too many requests from §."),
    _said("mac", "00:1b:44:" + "11:3a:b7", "no lease for §"),
    # What databases and validators quote.
    _said("row that exists", "Ada " + "Lovelace", "DETAIL:  Key (name)=(§) already exists."),
    _said("row that fails", "Ada " + "Byron", "DETAIL:  Failing row contains (7, §, null)."),
    _said("entry that exists", "Ada " + "Noel", "1062: Duplicate entry '§' for key 'users.name'"),
    _said("parameters", "Ada " + "King", "[SQL: INSERT INTO t VALUES (?)] [parameters: ('§', 7)]"),
    _said("input", "Once upon " + "a time", "[type=int_parsing, input_value='§', input_type=str]"),
    # Names and shapes that were missed before.
    *(
        _said(f"name {number}: {text}", WORD, text)
        for number, text in enumerate(
            (
                "userpass=§",
                "psw=§",
                "{'psw': '§'}",
                "pswd: §",
                "passwrd=§",
                "pass phrase: §",
                "passw=§",
                "dbpass=§",
                "mailpass=§",
                "keypass=§",
                "adminpw=§",
                "bindpw: §",
                "creds: §",
                "cred=§",
                "privkey=§",
                "sig=§",
                "hmac=§",
                "sas=§",
                "sess=§",
                "xsrf=§",
                "oauth_verifier=§",
                "bearer=§",
                "client_assertion=§",
                "samlresponse=§",
                "mnemonic=§",
                "seed phrase: §",
                "recovery code: §",
                "kennwort: §",
                "mot de passe: §",
                "contraseña: §",
                "senha=§",
                "parola=§",
                "wachtwoord: §",
                "пароль: §",
                "密码: §",
                "the password is §, it said",
                "the passphrase was §",
                "password '§' is wrong",
                "machine x.test login ada password §",
                "requirepass §",
                "CREATE USER ada IDENTIFIED BY '§'",
                "ALTER ROLE ada ENCRYPTED PASSWORD '§'",
                "> PASS §",
                "AUTH §",
                '<add key="Password" value="§"/>',
                "redis-cli -h x.test -a § ping",
                "mongosh -u ada -p § shop",
                "docker login -u ada -p § x.test",
                "openssl enc -aes-256-cbc -k §",
                "db.test:5432:shop:ada:§",
                "CONNECT ada:§@proxy:3128",
                "ada:§@proxy.local:3128 refused",
                "http_proxy=ada:§@203.0.113.9:3128",
                "MYSQL_PWD=§",
                "Server=x.test;UID=sa;PWD=§;",
                "PRIVATE-TOKEN: §",
                "wget --http-password=§ x.test",
                "-passin pass:§",
            )
        )
    ),
    _said("verification code", "9137" + "76", "verification code: §"),
    _said("pin code", "48" + "11", "pin code: §"),
    _said("bcrypt", "abcdefghijklmnopqrstuv" * 2, "ada has $2b$12$§"),
    _said("crypt", "salt$" + MIXED, "root:$6$§:18000"),
    _said("brevo", "xkeysib" + "-" + HEX + HEX, "key § not found"),
    _said("langsmith", "lsv2" + "_pt_" + HEX, "403 for §"),
    _said("cloudflare", "v1.0" + "-" + HEX, "403 for §"),
]
