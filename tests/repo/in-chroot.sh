#!/bin/bash
# What tests/repo/run --full does with apt itself, sourced by it: the chroot's own
# packages are installed, upgraded and removed, from archives on the loopback.
# shellcheck disable=SC2034,SC2086,SC2154 # variables of tests/repo/run

export DEBIAN_FRONTEND=noninteractive
ours $first
stock $base
mkdir "$work/www"
ln -s "$repo" "$work/www/pcache"
ln -s "$work/stock" "$work/www/debian"
python3 -u -m http.server --bind 127.0.0.1 --directory "$work/www" 0 >"$work/http" 2>&1 &
http=$!
for _ in {1..50}; do
	port=$(sed -n 's/^Serving HTTP on 127.0.0.1 port \([0-9]*\) .*/\1/p' "$work/http")
	[ -z "$port" ] || break
	sleep 0.1
done
archives=http://127.0.0.1:$port
get() { apt-get -q -y "$@"; }
version_of() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || true; }
link=/etc/apt/preferences.d/postgresql-18-pcache

# These are all that there is: nothing of Debian's is upgraded by the way.
echo 'Acquire::http::Proxy::127.0.0.1 "DIRECT";' >/etc/apt/apt.conf.d/99test
cp "$work/debian.gpg" /usr/share/keyrings/test.gpg
echo "deb [signed-by=/usr/share/keyrings/test.gpg] $archives/debian ./" >/etc/apt/sources.list
must get update
must get install postgresql-18 libpq5
is "the stock server is installed" "$(version_of postgresql-18)" $base

# As the guide has it
must cp "$repo/pcache-archive-keyring.gpg" /usr/share/keyrings/pcache-archive-keyring.gpg
cat >/etc/apt/sources.list.d/pcache.sources <<SOURCES
Types: deb
URIs: $archives/pcache
Suites: ./
Signed-By: /usr/share/keyrings/pcache-archive-keyring.gpg
SOURCES
ok "apt takes our repository" get update
ok "its index by hash" grep -qE '"GET /pcache/\./by-hash/SHA(256|512)/[0-9a-f]+ HTTP[^"]*" 200' "$work/http"
ok "and not by name" not grep -qE '"GET /pcache/\./Packages' "$work/http"
ok "our server is installed over it" get install postgresql-18 postgresql-18-pcache-tools
is "which is" "$(version_of postgresql-18)" $first
is "the preference is in force" "$(apt-cache policy postgresql-18 | sed -n "s/^ \*\*\* //p")" "$first 1001"
is "no update waits" "$(pg_pcache-check-updates)" "postgresql-18 $first is up to date: apt knows no version that is newer than $base."

# waits NAME VERSION: of Debian's, which stays where it is
waits() {
	stock "$2"
	must get update
	is "$1 is found" "$(pg_pcache-check-updates --json | jq -r '.state + " " + .available')" "waiting $2"
}
unattended() {
	local rc=0
	unattended-upgrade --debug "$@" >"$work/unattended" 2>&1 || rc=$?
	cat "$work/unattended" >>"$work/unattended.all"
	return $rc
}
waits "a newer minor release" 18.7-1
ok "unattended-upgrade --dry-run" unattended --dry-run
ok "it would upgrade libpq5" grep -qE '^Packages that will be upgraded: libpq5$' "$work/unattended"
ok "unattended-upgrade" unattended
is "it has upgraded libpq5" "$(version_of libpq5)" 18.7-1
is "and our server is still there" "$(version_of postgresql-18)" $first
waits "the next one" 18.8-1
ok "apt-get upgrade" get upgrade
is "it has upgraded libpq5" "$(version_of libpq5)" 18.8-1
is "and our server is still there" "$(version_of postgresql-18)" $first
waits "the one after it" 18.9-1
ok "apt-get full-upgrade" get full-upgrade
is "it has upgraded libpq5" "$(version_of libpq5)" 18.9-1
is "and our server is still there" "$(version_of postgresql-18 && version_of postgresql-18-pcache-tools)" $first$first

# Newer packages with the cache come, by hand and unattended.
ours $first $next
must get update
ok "apt-get upgrade to newer packages of ours" get upgrade
is "they are installed" "$(version_of postgresql-18) $(version_of postgresql-client-18) $(version_of postgresql-18-pcache-tools)" "$next $next $next"
newest=18.9-1+pcache0.9.0~deb13+1
ours $next $newest
must get update
is "packages with the cache wait" "$(pg_pcache-check-updates --json | jq -c '[.available, .with_cache]')" "[\"$newest\",true]"
ok "unattended-upgrade, as Debian has it" unattended
is "it does not know our repository" "$(version_of postgresql-18)" $next
echo 'Unattended-Upgrade::Origins-Pattern { "origin=pcache"; };' >/etc/apt/apt.conf.d/52pcache
ok "unattended-upgrade, with our origin" unattended
is "it has upgraded our server" "$(version_of postgresql-18) $(version_of postgresql-18-pcache-tools)" "$newest $newest"

# Without the package that has the preference, a stock server comes.
ok "the link is there" [ -L $link ]
must get remove postgresql-18-pcache-tools
ok "it goes with its package" [ ! -L $link ]
stock 18.10-1
must get update
ok "unattended-upgrade without the preference" unattended
is "the stock server has come" "$(version_of postgresql-18)" 18.10-1
is "and that is told" "$("$ROOT/tools/check-updates/pg_pcache-check-updates" --json | jq -r .reason)" "the installed postgresql-18 18.10-1 has no persistent cache"
