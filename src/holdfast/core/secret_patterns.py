r"""The shapes of secrets and of personal data.

Each is looked for in linear time, also in text that was written to make it slow. Three rules ensure this: a repetition
never gives back what it took (`++`), what may be long either begins at the edge of its run or cannot fail after it was
read, and what may be read again from the next character is bounded.

False positives are cheap: a message that lost a harmless word can still be read.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of secret or personal data: its *kind*, its shape, and what else has to be true of it.

    If the shape has a group `value`, only that is replaced: what stands around it says what it was.

    >>> Pattern("student", "matriculation (?P<value>[0-9]+)").group
    'value'
    """

    kind: str
    shape: str | re.Pattern[str]
    holds: Callable[[str], bool] = bool

    @property
    def expression(self) -> re.Pattern[str]:
        """The shape, compiled when it is first looked for: a process that redacts nothing compiles nothing."""
        return _compiled(self.shape)

    @property
    def group(self) -> int | str:
        """What of the shape is replaced."""
        return "value" if "value" in self.expression.groupindex else 0


@cache
def _compiled(shape: str | re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(shape)


def luhn(text: str) -> bool:
    """Whether the digits in *text* can be the number of a card.

    >>> luhn("4111 1111 1111 1111"), luhn("4111 1111 1111 1112")
    (True, False)
    """
    digits = [int(one) for one in text if one.isdigit()]
    doubled = (sum(divmod(2 * one, 10)) for one in digits[-2::-2])
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def iban(text: str) -> bool:
    """Whether *text* begins with the number of a bank account, by its country's length and its check digits.

    >>> iban("DE89 3704 0044 0532 0130 00"), iban("DE88 3704 0044 0532 0130 00")
    (True, False)
    """
    plain = text.replace(" ", "").upper()
    plain = plain[: _IBAN_LENGTHS.get(plain[:2], len(plain))]
    return int("".join(str(int(one, 36)) for one in plain[4:] + plain[:4])) % 97 == 1


_IBAN_LENGTHS = {
    country: int(length)
    for length, countries in (
        line.split(maxsplit=1)
        for line in (
            "15 NO",
            "16 BE",
            "18 DK FI FO GL NL FK SD",
            "19 MK SI",
            "20 AT BA EE KZ LT LU XK MN",
            "21 CH HR LI LV",
            "22 BG BH CR DE GB GE IE ME RS VA",
            "23 AE GI IL IQ OM SO TL",
            "24 AD CZ ES MD PK RO SA SE SK TN VG",
            "25 LY PT ST",
            "26 IS TR",
            "27 BI DJ FR GR IT MC MR SM",
            "28 AL AZ BY CY DO GT HU LB NI PL SV",
            "29 BR EG PS QA UA",
            "30 JO KW MU YE",
            "31 MT SC",
            "32 LC",
            "33 RU",
        )
    )
    for country in countries.split()
}


def _address(text: str) -> bool:
    """Whether *text* is an IP address other than those of this machine itself."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _long_enough(text: str) -> bool:
    return sum(one.isdigit() for one in text) >= 9


def _mailbox(text: str) -> bool:
    """Whether *text* ends in a domain: `lodash@4.17.21` does not."""
    return not text.rpartition(".")[2].isdigit()


def _encoded(text: str) -> bool:
    """Whether *text* is more than a word of a sentence."""
    return not (text.isalpha() and text[1:].islower())


def _no_prose(text: str) -> bool:
    """Whether *text* is more than a word of a sentence, or a count in it: `password expired.`, `password was 8`.

    >>> [_no_prose(text) for text in ("expired.", "hunter2", "correct-horse", "(expired)", "8", "[secret:0123abcd…]")]
    [False, True, True, False, False, False]
    """
    plain = text.strip(".,;:!?()[]{}…")
    return len(plain) >= 4 and not plain.isalpha() and not _REDACTED.match(text)


_REDACTED = re.compile(r"[\[\ue000]")


def _no_name(text: str) -> bool:
    """Whether *text* is more than words of a program that begin like a vendor's token."""
    return not text.islower() or any(one.isdigit() for one in text)


def _random(text: str) -> bool:
    """Whether *text* or a long part of it, such as the end of a path, is random."""
    parts = [part for part in re.split("[/_-]", text) if len(part) >= _LONG]
    return any(_looks_random(part) for part in (text, *parts))


def _looks_random(text: str) -> bool:
    """Whether capitals, small letters and digits follow each other as in random text.

    Random text has a digit beside a letter more often than names do, and a small letter beside a small one less often.
    Of 32 random characters one text in a hundred is missed, of 43 one in three hundred.
    """
    kinds = [
        "A" if one.isupper() else "a" if one.islower() else "0" if one.isdigit() else "-" for one in text
    ]
    pairs = Counter(map("".join, pairwise(kinds)))
    joints = sum(pairs[pair] for pair in ("a0", "A0", "0a", "0A"))
    within = sum(count for pair, count in pairs.items() if "-" not in pair)
    return {"A", "a", "0"} <= set(kinds) and (joints - pairs["aa"]) * 10 >= within * -3


_LONG = 32


def _letters_and_digits(text: str) -> bool:
    """Whether *text* has both: a long number has no letters."""
    return not (text.isdigit() or text.isalpha())


def _six_digits(text: str) -> bool:
    return sum(one.isdigit() for one in text) >= 6


def _not_an_escape(text: str) -> bool:
    """Whether *text* is more than the backslash before an inner quote: that value is read one layer deeper."""
    return bool(text.strip("\\"))


def _bracketed(depth: int) -> str:
    """Match from an opening bracket to the one that closes it; what is nested deeper is taken to the end of its line.

    It cannot fail once it has begun: what is never closed ends with its line, or with the lines that are indented.
    """
    if depth == 0:
        return r"[\[({][^\n]*+"
    string = r"""(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')"""
    piece = rf"""{string}|\\.|["'\\]|[^\[\](){{}}"'\\\n]++|\n(?=[ \t\])}}])|{_bracketed(depth - 1)}"""
    return rf"[\[({{](?:{piece})*+[\])}}]?+"


_EDGE = r"(?<![A-Za-z0-9])"
_GAP = r"[ \t]{0,40}+"
"""Also what aligns values in columns."""
_AMOUNT = rf"(?:s|_count|_limit)[\w-]{{0,32}}+[\"']?{_GAP}[:=]{_GAP}\d{{1,9}}+(?![\w.-])"
"""What follows `token` where tokens are counted, as language models do."""
_REST = r"[\w-]{0,32}+"
_OPEN_KEYS = (
    "access account admin aes api app auth client decryption deploy encryption fernet gpg hmac jwt license master pgp"
    " priv private root rsa secret server service session shared signing ssh subscription symmetric webhook"
)
"""Keys that open something: also in two words, with any suffix."""
_FIND_KEYS = (
    "cache candidate column composite dedup dedupe deduplication dict dup duplicate event field foreign group"
    " idempotency index item job json lock lookup map message missing natural object order partition primary public"
    " range record routing row shard sort stage subject surrogate translation unique unknown version"
)
"""Keys that only identify something: a reader of the message needs them."""
_OPENING = "|".join(rf"(?<={name})|(?<={name}[_ -])" for name in _OPEN_KEYS.split())
_NOT_FINDING = "".join(rf"(?<!{name})(?<!{name}[_-])" for name in _FIND_KEYS.split())
_KEY = (
    rf"(?=key)(?:(?:{_OPENING})key(?!board|word){_REST}"
    rf"|(?:(?<=[a-z0-9][_-])|(?-i:(?<=[A-Za-z0-9])(?=Key))){_NOT_FINDING}"
    r"keys?+(?:[_-]?(?:\d{1,3}+|b(?:ase)?64|hex|value))?+)"
)
"""Of unknown keys, `openai_key` and `stripeKey` are taken to open something. `key` alone is a word of dictionaries."""
_WORDS = (
    r"(?:auth[_-]?code|c(?:lient_assertion|ontrase[nñ]a|redential|srf|vv|vc)|dsn|has[lł]o(?![a-z])|heslo|jsessionid|kennwort"
    r"|l[oö]senord|m(?:nemonic|ot[ _-]?de[ _-]?passe)|oauth(?!or)|p(?:ass[ _-]?(?:wo?r?d|wort|phrase|code)|assw(?![a-z])|swd?|wd"
    r"|hpsessid)|parola|requirepass|s(?:amlresponse|ecret|enha|ession[_-]?id|essid|ignature)|wachtwoord|xsrf|пароль|密码"
    r"|(?:activation|backup|confirmation|one[ -]time|pin|recovery|security|verification)[ _-]?code|(?:recovery|seed)[ _-]phrase"
    r"|(?<!by)(?<!com)(?<!en)(?<!over)(?<!sur)(?<!tres)(?<!under)pass(?![a-z])|pw(?![a-z])"
    r"|(?<![a-z])(?:auth|bearer|creds?|hmac|jwt|pin|sas|sess|sid|sig|ssn|(?:t?otp|[2m]fa)(?: code)?)(?![a-z])"
    rf"|token(?!{_AMOUNT}))"
)
_NAME = rf"(?:{_WORDS}{_REST}|{_KEY})"
_BOUND = (
    rf"""(?:["']?{_GAP}(?::=|=>|[:=]){_GAP}"""
    rf"""|["']{_GAP},{_GAP}(?:["']value["']{_GAP}:{_GAP})?(?=b?["'])"""
    rf"""|["'][ \t]{{1,4}}+value{_GAP}={_GAP}(?=["'])|>)"""
)
_OPEN = r"""(?:b?(?P<quote>["']))?"""
_QUOTED = r"""(?:[^\\\n"']|(?!(?P=quote))["']|\\.)++"""
_PLAIN = r"""(?:[^\s,;&"'<>()\[\]{}]|[,()\[\]{}](?=[^\s,;&"'<>()\[\]{}]))++"""
_LIST = rf"(?!.\s{{0,3}}+[\])}}]){_bracketed(5)}"
"""In brackets, and not empty."""
_CALL = rf"[\w.]{{1,64}}+(?=\(b?[\"']){_LIST}"
_VALUE = rf"{_OPEN}(?P<value>(?(quote){_QUOTED}|(?:{_LIST}|{_CALL}|{_PLAIN})))"
_TO_LINE_END = rf"{_OPEN}(?P<value>(?(quote){_QUOTED}|[^\n\"'<>]++))"
_PARAMETER = r"""[\w-]{1,32}+=(?:"[^"\n]*+"|[^\s,;"'=][^\s,;"']*+)"""
_PARAMETERS = rf"{_PARAMETER}(?:[ ,]{{1,2}}+{_PARAMETER})*+"
_ARGUMENT = rf"""(?:["']?{_GAP},{_GAP}|[= \t]{{0,3}}+)"""
"""From an option to its value, on a command line or in a list of arguments."""
_LOGIN = r"""b?["']?(?!\d++:\d)[^\s:"',]{1,256}+:"""
"""A name and what belongs to it; two numbers are a user and a group."""
_SPOKEN = (
    r"(?<![a-z])(?:password|passwd|passphrase|passcode|passwort|bindpw|rootpw|requirepass|storepass|keypass)"
)
"""Names that stand before their value with nothing but a space between, in sentences and in files of settings."""
_MAIL_LABEL = r"(?i:address|b?cc|by|e?-?mail|from|mailto|owner|rcpt|recipient|reply-to|sender|to):"
_COMMANDS = (
    r"(?:redis-cli[^\n]{0,256}?[\s\"']-a|(?:mongo[a-z]{0,8}+|(?:docker|podman|az|oc|helm registry) login|sqlcmd)"
    r"[^\n]{0,256}?[\s\"']-[pP]|openssl [^\n]{0,256}?[\s\"']-k)"
)
"""Programs that are given a password after an option of one letter."""
_PHONE = (
    r"(?:phone|mobile|msisdn|telefon|whatsapp|(?<![a-z])(?:cell|fax|handy|tel))"
    r"(?:[_ -]?(?:number|nummer|num|no|nr|\d{1,2}+))?+\.?+"
)
_VENDORS = (
    r"sk-[\w-]{16,}+|[srp]k_(?:live|test)_\w{10,}+|whsec_[\w+/=]{16,}+|gh[oprsu]_\w{20,}+|github_pat_\w{20,}+"
    r"|gl(?:pat|dt|ptt|rt|cbt)-[\w-]{16,}+|xox[a-z]-[\w-]{10,}+|xapp-[\w-]{10,}+|(?:AKIA|ASIA)[0-9A-Z]{16,}+"
    r"|AIza[\w-]{30,}+|ya29\.[\w.-]{16,}+|GOCSPX-[\w-]{16,}+|1//[\w-]{30,}+|hf_\w{20,}+|npm_\w{20,}+"
    r"|pypi-[\w-]{20,}+|SG\.[\w-]{16,64}+\.[\w-]{16,}+|(?:SK|AC)[0-9a-f]{32}|key-[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{32,}+"
    r"|shp(?:at|ca|pa|ss)_\w{16,}+|sq0[a-z]{3}-[\w-]{16,}+|EAAA[\w-]{16,}+|dapi[0-9a-f]{32}|lin_api_\w{16,}+"
    r"|ntn_\w{16,}+|secret_\w{16,}+|hv[sbr]\.[\w-]{16,}+|dp\.[a-z]{2,4}\.\w{16,}+|gsk_\w{20,}+|r8_\w{20,}+"
    r"|pplx-\w{20,}+|xai-\w{20,}+|ATATT[\w=-]{16,}+|NRAK-\w{16,}+|sntry[su]_[\w+/=-]{16,}+|sbp_\w{16,}+"
    r"|xkeysib-[\w-]{16,}+|lsv2_[a-z]{2}_\w{16,}+|v1\.0-[0-9a-f]{24,}+|dckr_pat_[\w-]{16,}+|figd_[\w-]{16,}+|gls[ac]_\w{16,}+"
    r"|pcsk_\w{16,}+|tvly-[\w-]{16,}+|nvapi-[\w-]{16,}+|ATCTT[\w=-]{16,}+|ABSK[\w+/=]{16,}+|rubygems_[0-9a-f]{16,}+"
    r"|pscale_[a-z]{2,8}_[\w.-]{16,}+|PMAK-[\w-]{16,}+|tskey-[\w-]{16,}+|AGE-SECRET-KEY-1\w{16,}+|HRKU-[\w-]{16,}+|rnd_\w{16,}+|re_\w{16,}+"
)

PATTERNS = (
    Pattern(
        "key",
        r"-----BEGIN [A-Z0-9 ]{1,64}+-----(?:[A-Za-z0-9+/=\s\\:,%.]|-(?!----END))*+(?:-----END [A-Z0-9 ]{1,64}+-----)?+",
    ),
    Pattern(
        "authorization",
        rf"(?i:authorization{_BOUND}{_OPEN}(?:[a-z][\w-]{{2,19}}[ \t]{{1,3}})?)(?P<value>{_PARAMETERS}|[^\s\"',;]++)",
    ),
    Pattern(
        "authorization",
        rf"(?i:{_EDGE}(?:bearer|negotiate|basic|digest|apikey)[ \t]{{1,3}}+)(?P<value>[\w.~+/=-]{{8,}}+)",
        _encoded,
    ),
    Pattern("cookie", rf"(?i:{_EDGE}(?:set-)?cookie2?{_BOUND}){_TO_LINE_END}", _not_an_escape),
    Pattern("cookie", r"<Cookie (?P<value>[^\s=]{1,256}+=\S*+)"),
    Pattern(
        "row",
        r"(?:\)=\(|[Rr]ow contains \(|\[parameters: |\binput_value=|Duplicate entry |dup key: )(?P<value>[^\n]++)",
    ),
    Pattern("webhook", r"(?<=://)hooks\.slack\.com/(?P<value>[\w/-]++)"),
    Pattern("webhook", r"(?<=/api/webhooks/)(?P<value>[\w/-]++)"),
    Pattern("token", rf"{_EDGE}(?:{_VENDORS})", _no_name),
    Pattern("token", r"(?<![0-9])[0-9]{8,10}:AA[\w-]{32,}+"),
    Pattern("jwt", r"eyJ[\w-]{16,}+(?:\.[\w-]*+)*+"),
    Pattern(
        "login",
        r"(?<=://)(?P<value>[^\s/@?#\"'<>]{1,512}+(?:@[^\s/@?#\"'<>]{1,512}+)*?)(?=@[^\s/@?#\"'<>]*+(?!@))",
    ),
    Pattern(
        "login",
        r"(?<=[a-z0-9])(?<!http)(?<!https)://(?P<value>[^\s:@\"'<>]{0,256}+:[^\s@\"'<>]{1,256}+)(?=@)",
    ),
    Pattern(
        "login", rf"(?i:auth|credentials?)(?P<value>(?=\({_GAP}b?[\"'][^\n\"']{{0,256}}+[\"']{_GAP},){_LIST})"
    ),
    Pattern("login", rf"(?<![\w-])(?:-u|--(?:proxy-)?user){_ARGUMENT}(?={_LOGIN}){_VALUE}"),
    Pattern("secret", rf"(?<![\w-])sshpass{_ARGUMENT}[\"']?-p{_ARGUMENT}{_VALUE}"),
    Pattern("secret", r"(?<![\w-])(?:mysql|mariadb)[^\n]{0,256}?[\s\"']-p(?P<value>[^\s\"']++)"),
    Pattern("secret", rf"(?<![\w-]){_COMMANDS}[\"']?[, \t]{{1,4}}+[\"']?(?P<value>[^\s\"']++)"),
    Pattern(
        "secret",
        rf"(?i:{_SPOKEN}|identified(?: with [\w\"']{{1,64}}+)? by) {{1,4}}+(?P<quote>[\"'])(?P<value>{_QUOTED})",
    ),
    Pattern(
        "secret",
        rf"(?i:{_SPOKEN}(?: {{1,4}}+(?:is|was))?+|identified(?: with [\w\"']{{1,64}}+)? by) {{1,4}}+(?P<value>[^\s\"'<>,;]++)",
        _no_prose,
    ),
    Pattern(
        "secret",
        r"(?<![\w-])(?:AUTH(?: PLAIN| LOGIN)?|PASS|LOGIN \S{1,64}+) (?P<value>[^\s/\"':.]{4,}+)(?![/:.])",
        _no_prose,
    ),
    Pattern(
        "secret",
        r"\$(?:2[abxy]?|[156y]|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[\w-]{0,16}+)\$(?P<value>[^\s:\"',;]{8,}+)",
    ),
    Pattern(
        "secret",
        r"(?<![\w.:-])[\w.*-]{1,64}+:(?:54\d\d|6432|\*):[\w.*-]{1,64}+:[\w.*-]{1,64}+:(?P<value>[^\s:\"']++)",
    ),
    Pattern("value", r"(?<=[?&])[\w.~%\[\]$-]{1,64}+=(?P<value>[^\s&#\"'<>)\\]++)"),
    Pattern("secret", rf"(?i:{_NAME}{_BOUND}){_VALUE}", _not_an_escape),
    Pattern("secret", rf"(?i:(?<![\w-])--?[\w-]{{0,32}}?{_NAME}[ \t]{{1,40}}+)(?!-){_VALUE}"),
    Pattern(
        "login",
        rf"(?<![\w.+/@:-])(?!{_MAIL_LABEL})(?P<value>[\w.+-]{{1,64}}+:[^\s:/@\"'<>,]{{1,128}}+)(?=@(?!sha\d)[\w\[\ue000])",
    ),
    Pattern("email", r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++", _mailbox),
    Pattern(
        "login",
        r"(?<![\w./@-])[\w$#]{1,64}+/(?P<value>[^\s/@\"'<>]{1,128}+)@(?!v?\d|sha\d|(?:main|master|latest|next|HEAD)\b)(?=[\w/(])",
    ),
    Pattern(
        "iban",
        rf"{_EDGE}[A-Za-z]{{2}}\d{{2}}(?:(?: [A-Za-z0-9]{{4}}){{2,7}}+(?: [A-Za-z0-9]{{1,3}})?|[A-Za-z0-9]{{11,30}}+)",
        iban,
    ),
    Pattern(
        "card",
        r"(?<![\d.])(?<!\d-)(?<![0-9a-f]{2})[2-6](?:\d{12,18}+|\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}|\d{3}[ -]\d{6}[ -]\d{5})(?!\d)",
        luhn,
    ),
    Pattern("phone", rf"(?i:{_PHONE}{_BOUND}){_OPEN}(?P<value>\+?+[\d(][\d ().\-/]{{5,24}}+)", _six_digits),
    Pattern("phone", r"(?<![\w+])(?:\+|00(?=[1-9]))\d(?:[ ().\-/]{0,2}+\d){7,13}+(?!\w)", _long_enough),
    Pattern("phone", r"(?<![\w+.-])\(?0\d{1,4}+\)?+[ /-](?:[ -]?\d){5,11}+(?!\w)", _long_enough),
    Pattern("phone", r"(?<![\w+.-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"),
    Pattern("ip", r"(?<![\w.])\d{1,3}+(?:\.\d{1,3}+){3}(?!\.?\w)", _address),
    Pattern("mac", r"(?<![\w:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![\w:-])"),
    Pattern(
        "ip",
        r"(?<![\w:.])[0-9A-Fa-f]{0,4}+(?::[0-9A-Fa-f]{0,4}+){2,7}+(?:(?<=:\d)|(?<=:\d\d)|(?<=:\d\d\d))?(?:\.\d{1,3}+){0,3}+(?![\w:])",
        _address,
    ),
    Pattern("opaque", rf"(?<![\w+/-])[\w+/-]{{{_LONG},}}+={{0,2}}+", _random),
    # 32 are a UUID, a trace or a digest, and 40 a commit: operators need those. More are a key, unless called a digest.
    Pattern(
        "opaque",
        r"(?i:(?<![\w+/-])(?<!sha\d{3}[:=])(?<!sha\d{3}: )[0-9a-f]{41,}+(?![\w+/-]))",
        _letters_and_digits,
    ),
)
"""What is looked for, in this order: what one has seen, the next does not see."""
