# shellcheck shell=bash
# suite_environment PREFIX: what PostgreSQL's own suites want to know of the
# server that is installed in PREFIX.  To be sourced after tools/lib.sh.

pg=$BUILD/postgres

suite_environment() {
	local prefix=$1 v

	[ -x "$prefix/bin/postgres" ] || die "no server in $prefix" "run make first"
	[ -x "$pg/src/test/regress/pg_regress" ] || die "build/postgres is not built" "run make first"
	for v in ${!PG*}; do case $v in PG_TEST_* | PGCTLTIMEOUT) ;; *) unset "$v" ;; esac done
	unset LANGUAGE LC_ALL
	export LC_MESSAGES=C PGPORT=65432 top_builddir=$pg
	export enable_injection_points=yes with_ssl=openssl with_icu=yes
	export PG_REGRESS=$pg/src/test/regress/pg_regress REGRESS_SHLIB=$pg/src/test/regress/regress.so
	export PERL5LIB=$pg/src/test/perl${PERL5LIB:+:$PERL5LIB}
	share_contrib_dir=$("$prefix/bin/pg_config" --sharedir)/extension
	LD_LIBRARY_PATH=$("$prefix/bin/pg_config" --libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	PATH=$prefix/bin:$pg/src/test/regress:$PATH
	export share_contrib_dir LD_LIBRARY_PATH PATH
}
