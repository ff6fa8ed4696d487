# Copyright (c) 2026, the persistent-cache developers

# pg_hotset_load() reads what a list of pg_hotset, of pg_prewarm or of
# pg_buffercache names, on a server that nothing was preloaded in.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_primary('main');
my $directory = PostgreSQL::Test::Utils::tempdir;

add_table($node, 'hot', 300);
add_table($node, 'other', 100);
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION pg_prewarm; CREATE EXTENSION pg_buffercache');
add_table($node, 'hot', 50, database => 'second');
$node->restart;

# Lists that name the same, in all forms.
$node->safe_psql('postgres', "SELECT pg_prewarm('hot') FROM generate_series(1, 4)");
$node->safe_psql('second', "SELECT pg_prewarm('hot')");
my $second = pages($node, 'hot', database => 'second');
my $pages = pages($node, 'hot');
my $heat = heat($node, 'hot');
$node->safe_psql('postgres', "SELECT autoprewarm_dump_now()");
rename $node->data_dir . '/autoprewarm.blocks', "$directory/blocks" or die $!;
write_file('list', $node->safe_psql('postgres', "SELECT encode(pg_hotset(), 'hex')") =~ s/(..)/chr(hex($1))/ger);
write_file('csv', $node->safe_psql('postgres', 'COPY (SELECT * FROM pg_buffercache) TO STDOUT (FORMAT csv, HEADER)') . "\n");

sub write_file
{
	my ($name, $contents) = @_;

	open(my $fh, '>:raw', "$directory/$name") or die "$name: $!";
	print $fh $contents;
	close $fh or die $!;
}

foreach my $case ([ 'list', 1 ], [ 'csv', 1 ], [ 'blocks', 0 ])
{
	my ($name, $with_heat) = @$case;

	$node->restart;
	is(pages($node, 'hot'), 0, "$name: cold");
	like($node->safe_psql('postgres', "SELECT read FROM pg_hotset_load('$directory/$name')"),
		qr/^(?:3[5-9]|[4-9])\d+$/, "$name: it says how many were read");
	is(pages($node, 'hot'), $pages, "$name: they are there");
	is(pages($node, 'hot', database => 'second'), $second, "$name: those of another database, too");
	is(heat($node, 'hot'), $heat, "$name: with their usage counts") if $with_heat;
	is(pages($node, 'other'), 0, "$name: nothing else");
	is($node->safe_psql('postgres', "SELECT read FROM pg_hotset_load('$directory/$name')"), 0, "$name: and not twice");
}

# What is gone is skipped and counted.
$node->safe_psql('postgres', 'DELETE FROM hot WHERE i > 400; VACUUM hot');
$node->safe_psql('second', 'DROP TABLE hot');
$node->restart;
cmp_ok($node->safe_psql('postgres', "SELECT skipped FROM pg_hotset_load('$directory/list')"), '>', 150, 'pages that are gone are skipped');

# Shared relations are not read in a database that is gone.
$node->safe_psql('postgres', 'DROP DATABASE second');
$node->safe_psql('postgres', 'SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE reldatabase = 0');
my $offset = -s $node->logfile;
cmp_ok($node->safe_psql('postgres', "SELECT read FROM pg_hotset_load('$directory/list')"),
	'>', 0, 'shared relations are read, although a database is gone');
unlike(slurp_file($node->logfile, $offset), qr/FATAL/, '... and nobody connects to it');

# damaged and foreign files
my $blocks = slurp_file("$directory/blocks");
my $csv = slurp_file("$directory/csv");
my $list = slurp_file("$directory/list");
my @bad = (
	[ 'a list that is cut', substr($list, 0, 500), qr/The list is damaged/ ],
	[ 'blocks that are cut', substr($blocks, 0, length($blocks) / 2 | 1), qr/is not complete|is damaged/ ],
	[ 'blocks with a line less', $blocks =~ s/\n\K[^\n]+\n\z//r, qr/is not complete: its first line promises \d+ lines/ ],
	[ 'blocks with letters', $blocks =~ s/\n\K\d/x/r, qr/Line 2 is damaged/ ],
	[ 'blocks with a large number', $blocks =~ s/\n\K\d/99999999999/r, qr/Line 2 is damaged/ ],
	[ 'blocks with an overflow', $blocks =~ s/\n\K\d/99999999999999999999999/r, qr/Line 2 is damaged/ ],
	[ 'blocks with a null byte', $blocks =~ s/\n\K\d/\0/r, qr/null byte at offset \d/ ],
	[ 'blocks with a promise that is no number', $blocks =~ s/<<\K\d/-/r, qr/neither a list/ ],
	[ 'CSV without a column', $csv =~ s/relforknumber/fork/r, qr/neither a list/ ],
	[ 'CSV with letters', $csv =~ s/\n\d+,\K\d+/x/r, qr/Line 2 is damaged/ ],
	[ 'CSV that is cut', $csv =~ s/\n\d+,\d+,\K.*\z//sr, qr/Line 2 is damaged/ ],
	[ 'another file', "Hello\n", qr/neither a list/ ],
	[ 'an empty file', '', qr/could not use file/ ],
	[ 'zeros', "\0" x 4096, qr/null byte at offset 0/ ],);
foreach my $case (@bad)
{
	my ($name, $contents, $expected) = @$case;
	my ($rc, $out, $err);

	write_file('bad', $contents);
	($rc, $out, $err) = $node->psql('postgres', "SELECT * FROM pg_hotset_load('$directory/bad')");
	like($err, $expected, "$name is refused");
}

# There are numbers that no file has, and forks.
write_file('csv', "relfilenode,reltablespace,reldatabase,relforknumber,relblocknumber\n99999,1663,5,0,1\n99999,1663,99999,0,4294967294\n99999,1663,5,7,0\n99999,1664,5,0,0\n99999,1663,5,0,4294967295\n1259,1663,5,0,0\n");
is($node->safe_psql('postgres', "SELECT read || ' ' || skipped FROM pg_hotset_load('$directory/csv')"),
	'0 6', 'what cannot be is skipped');

# Each page of a list from another cluster is counted once, also if there is no
# room, and those of the catalogs are left out.
$node->safe_psql('postgres', <<'EOF');
CREATE FUNCTION crc_of(body bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	crc bigint := 4294967295;
BEGIN
	FOR i IN 0 .. length(body) - 1 LOOP
		crc := crc # get_byte(body, i);
		FOR bit IN 1 .. 8 LOOP
			crc := (crc >> 1) # (crc & 1) * 2197175160;
		END LOOP;
	END LOOP;
	RETURN crc # 4294967295;
END $$;
CREATE FUNCTION foreign_list(list bytea) RETURNS bytea LANGUAGE sql AS $$
	SELECT body || (SELECT decode(string_agg(substr(hex, n, 2), '' ORDER BY n DESC), 'hex')
					FROM (SELECT lpad(to_hex(crc_of(body)), 8, '0') AS hex) h, generate_series(1, 7, 2) n)
	FROM (SELECT set_byte(substr(list, 1, length(list) - 4), 24, get_byte(list, 24) # 1) AS body) b
$$;
EOF
my $foreign = $node->safe_psql('postgres', "SELECT encode(foreign_list(pg_hotset()), 'hex')");
write_file('foreign', $foreign =~ s/(..)/chr(hex($1))/ger);
add_table($node, 'large', 4000);
$node->safe_psql('postgres', "SELECT pg_prewarm('large', first_block => 0, last_block => 1900) FROM generate_series(1, 6)");
is( $node->safe_psql(
		'postgres', "SELECT read + here + skipped - (SELECT pages FROM pg_hotset_info('\\x$foreign')) FROM pg_hotset_load('$directory/foreign')"),
	0,
	'each page of a list from another cluster is counted once');

$node->stop;
done_testing();
