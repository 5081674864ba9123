"""A client of LDAP: ldap_client.py URL OUTSTANDING. Prints how many requests of each kind it has made."""

import collections
import sys

import ldap
from ldap.controls import RequestControl

url, outstanding = sys.argv[1], int(sys.argv[2])
base = "dc=example,dc=com"
people = "ou=people," + base
made = collections.Counter()


def sends(kind, request, *arguments, **named):
    made[kind] += 1
    return request(*arguments, **named)


def fails(error, kind, request, *arguments):
    try:
        sends(kind, request, *arguments)
    except error:
        return
    raise SystemExit(f"{kind} does not fail")


def all_at_once(kind, requests):
    """Keeps so many requests in flight."""
    ids = []
    for request in requests:
        ids.append(sends(kind, *request))
        if len(ids) >= outstanding:
            connection.result(ids.pop(0))
    for number in ids:
        connection.result(number)


connection = ldap.initialize(url)
fails(ldap.INVALID_CREDENTIALS, "Bind", connection.simple_bind_s, "cn=admin," + base, "wrong")
fails(ldap.UNWILLING_TO_PERFORM, "Bind", connection.simple_bind_s, "cn=admin," + base, "")
sends("Bind", connection.simple_bind_s, "cn=admin," + base, "secret")
person = [("objectClass", b"person"), ("sn", b"x"), ("description", b"y" * 2000)]
domain = [("objectClass", [b"organization", b"dcObject"]), ("o", b"example"), ("dc", b"example")]
sends("Add", connection.add_s, base, domain)
sends("Add", connection.add_s, people, [("objectClass", b"organizationalUnit"), ("ou", b"people")])
all_at_once("Add", [(connection.add, f"cn=user{at},{people}", person + [("cn", b"user%d" % at)]) for at in range(200)])
fails(ldap.ALREADY_EXISTS, "Add", connection.add_s, people, [("objectClass", b"organizationalUnit"), ("ou", b"people")])
search = connection.search
all_at_once("Search", [(search, people, ldap.SCOPE_SUBTREE, f"(cn=user{at % 200})") for at in range(600)])
# Many entries, and more than were wanted.
assert len(sends("Search", connection.search_s, people, ldap.SCOPE_ONELEVEL, "(objectClass=person)")) == 200
fails(ldap.NO_SUCH_OBJECT, "Search", connection.search_s, "ou=none," + base, ldap.SCOPE_BASE)
changes = [(ldap.MOD_REPLACE, "sn", b"z")]
all_at_once("Modify", [(connection.modify, f"cn=user{at},{people}", changes) for at in range(50)])
assert sends("Compare", connection.compare_s, "cn=user1," + people, "sn", b"z")
assert not sends("Compare", connection.compare_s, "cn=user1," + people, "sn", b"x")
sends("ModifyDN", connection.rename_s, "cn=user1," + people, "cn=other")
all_at_once("Delete", [(connection.delete, f"cn=user{at},{people}") for at in range(100, 150)])
sends("WhoAmI", connection.whoami_s)

# A search that goes on for changes, until it is cancelled; and one that is abandoned.
persist = RequestControl("1.3.6.1.4.1.4203.1.9.1.1", True, b"\x30\x03\x0a\x01\x03")
for end in ["cancel", "abandon"]:
    number = connection.search_ext(base, ldap.SCOPE_BASE, serverctrls=[persist])
    connection.result(number, all=0)
    sends("Modify", connection.modify_s, base, [(ldap.MOD_REPLACE, "description", end.encode())])
    connection.result(number, all=0)
    if end == "cancel":
        made["Search"] += 1
        sends("Cancel", connection.cancel_s, number)
    else:
        connection.abandon(number)
sends("Search", connection.search_s, "", ldap.SCOPE_BASE)
connection.unbind_s()
for kind, count in made.items():
    print(kind, count)
