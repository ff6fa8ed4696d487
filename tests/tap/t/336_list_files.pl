
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache rebuild --warm-from-files --list: the first start of a cluster that
# pg_upgrade has made is as warm as the old one was, by the list of pg_hotset, of
# pg_prewarm or of pg_buffercache.  What no longer fits is counted, and a file that
# is damaged or no list changes nothing.

use strict;
use warnings FATAL => 'all';

use List::Util qw(sum0);
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $directory = PostgreSQL::Test::Utils::tempdir;

# pg_upgrade wants one that it can write to.
chdir $directory or die;
my $old = new_node('old', mode => undef);
my ($result, $offset, $outcome);

sub write_file
{
	my ($name, $contents) = @_;

	open(my $fh, '>:raw', "$directory/$name") or die "$name: $!";
	print $fh $contents;
	close $fh or die $!;
	return;
}

# Save what a server has in shared buffers as a list of pg_hotset.
sub save_list
{
	my ($node, $name) = @_;

	write_file($name, $node->safe_psql('postgres', "SELECT encode(pg_hotset(), 'hex')") =~ s/(..)/chr(hex($1))/ger);
	return;
}

# The pages of our tables that are in shared buffers, by table and usage count.
sub heat
{
	my ($node, $database) = @_;

	return $node->safe_psql($database, q{
SELECT relname || ' ' || usagecount || ':' || count(*) FROM pg_buffercache b
JOIN pg_class c ON pg_relation_filenode(c.oid) = b.relfilenode
WHERE relname IN ('hot', 'lukewarm', 'cold') AND relforknumber = 0 AND
	  reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY relname, usagecount ORDER BY 1});
}

# The same without usage counts.
sub pages
{
	my %pages;

	$pages{ (split / /)[0] } += (split /:/)[1] foreach split /\n/, heat(@_);
	return \%pages;
}

# Empty the pool, and fill it by a list.  All pages that were read are kept.
sub rebuild
{
	my ($node, $name, @args) = @_;
	my $rebuilt = verb_json($node, 'rebuild', '--reset', '--warm-from-files', "--list=$directory/$name", @args);
	my $list = $rebuilt->{warm_from_files};

	is($rebuilt->{rc}, 0, "$name: exit status") or diag($rebuilt->{stderr});
	is($rebuilt->{pages_kept}, $rebuilt->{dry_run} ? undef : $list->{read}, "$name: all that was read is kept");
	is( sum0(map { $list->{$_} } qw(listed_twice relation_gone beyond_end unlogged system_catalogs
			  already_in_pool read no_room invalid_header wrong_checksum wal_not_durable unreadable)),
		$list->{listed}, "$name: each page is counted once");
	return $list;
}

sub starts_warm
{
	my ($node, $name, $kept) = @_;

	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason});
	is($outcome->{kept}, $kept, "$name: pages kept");
	return;
}

# ---------------------------------------------------------------------------
# Lists of an old server.
# ---------------------------------------------------------------------------
$old->start;
$old->safe_psql('postgres', 'CREATE DATABASE other');
foreach my $database ('postgres', 'other')
{
	$old->safe_psql($database, <<'EOF');
CREATE EXTENSION pg_hotset;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE EXTENSION pageinspect;
CREATE TABLE hot AS SELECT i, repeat('x', 1500) AS filler FROM generate_series(1, 1500) i;
CREATE TABLE lukewarm AS SELECT * FROM hot;
CREATE TABLE cold AS SELECT * FROM hot;
VACUUM (FREEZE);
EOF
}
$old->restart;
$old->safe_psql('postgres', "SELECT pg_prewarm('hot') FROM generate_series(1, 5); SELECT pg_prewarm('lukewarm') FROM generate_series(1, 3)");
$old->safe_psql('other', "SELECT pg_prewarm('lukewarm') FROM generate_series(1, 2)");
my %heat = map { $_ => heat($old, $_) } 'postgres', 'other';
my %pages = map { $_ => pages($old, $_) } 'postgres', 'other';
save_list($old, 'list');
write_file('csv', $old->safe_psql('postgres', 'COPY (SELECT * FROM pg_buffercache) TO STDOUT (FORMAT csv, HEADER)') . "\n");
$old->safe_psql('postgres', 'SELECT autoprewarm_dump_now()');
write_file('blocks', slurp_file($old->data_dir . '/autoprewarm.blocks'));
$old->stop;

# ---------------------------------------------------------------------------
# pg_upgrade, and each of them.
# ---------------------------------------------------------------------------
my $new = new_node('new', mode => undef, init => { force_initdb => 1 }, conf => "shared_buffers = 16MB\n");
my $bin = $new->config_data('--bindir');
command_ok(
	[   'pg_upgrade', '--no-sync', '--swap', '-d' => $old->data_dir, '-D' => $new->data_dir,
		'-b' => $bin, '-B' => $bin, '-s' => $new->host, '-p' => $old->port, '-P' => $new->port
	],
	'pg_upgrade');
add_pool($new);

foreach my $case ([ 'list', 1 ], [ 'csv', 1 ], [ 'blocks', 0 ])
{
	my ($name, $with_heat) = @$case;
	my $list = rebuild($new, $name);

	cmp_ok($list->{system_catalogs}, '>', 50, "$name: catalogs are left out");
	cmp_ok($list->{read}, '>=', sum0(map { values %$_ } values %pages), "$name: our tables are read");
	starts_warm($new, $name, $list->{read});
	foreach my $database ('postgres', 'other')
	{
		is_deeply(pages($new, $database), $pages{$database}, "$name: the pages that the old server of $database had are there");
		is(heat($new, $database), $heat{$database}, "$name: they are as hot as they were in $database") if $with_heat;
	}
	is($new->safe_psql('postgres', 'SELECT count(filler) FROM hot; SELECT pg_stat_force_next_flush()'), "1500\n", "$name: contents");
	is($new->safe_psql('postgres', "SELECT heap_blks_read FROM pg_statio_user_tables WHERE relname = 'hot'"),
		0, "$name: nothing of the table is read");
	pages_equal_disk($new, $name);
	$new->stop;
}

# A list of the cluster itself has catalogs as well.
$new->start;
$new->safe_psql('postgres', "SELECT pg_prewarm('cold')");
save_list($new, 'own');
$new->stop;
$result = rebuild($new, 'own');
is($result->{system_catalogs}, 0, 'own: catalogs are not left out');
is($result->{relation_gone} + $result->{beyond_end}, 0, 'own: all is there');
starts_warm($new, 'own', $result->{read});

# ---------------------------------------------------------------------------
# What no longer fits, and what cannot be.
# ---------------------------------------------------------------------------
$new->safe_psql('postgres', 'DROP TABLE hot; DELETE FROM lukewarm WHERE i > 100');
$new->safe_psql('postgres', 'VACUUM lukewarm');
$new->stop;
$result = rebuild($new, 'list', '--dry-run');
cmp_ok($result->{relation_gone}, '>=', $pages{postgres}{hot}, 'later: pages of a table that is gone');
cmp_ok($result->{beyond_end}, '>', 200, 'later: pages beyond the end of their file');
cmp_ok($result->{read}, '>', $pages{other}{lukewarm}, 'later: the rest would be read');
write_file('impossible', "relfilenode,reltablespace,reldatabase,relforknumber,relblocknumber\n"
	  . join('', map { "$_\n" } '99999,1663,5,0,1', '99999,1663,99999,0,4294967294', '99999,1664,5,0,0',
		'99999,1663,0,0,0', '99999,0,5,0,0', '0,1663,5,0,0', '99999,1663,5,3,0', '99999,1663,5,4294967295,0',
		'4294967295,4294967295,4294967295,2,4294967295', '1259,1663,5,0,0', ',,,,'));
my $verdict = verify_json($new);
$result = verb_json($new, 'rebuild', '--warm-from-files', "--list=$directory/impossible");
is($result->{rc}, 0, 'impossible: exit status') or diag($result->{stderr});
is($result->{warm_from_files}{listed}, 10, 'impossible: an empty buffer is no page');
is($result->{warm_from_files}{relation_gone}, 9, 'impossible: there are no such files');
is($result->{warm_from_files}{system_catalogs}, 1, 'impossible: a catalog');
is(verify_json($new)->{pages}{kept}, $verdict->{pages}{kept}, 'impossible: the pool has what it had');

# ---------------------------------------------------------------------------
# Files that are refused.
# ---------------------------------------------------------------------------
my $inode = join ' ', (stat pool_file($new))[ 1, 7, 9 ];
my $blocks = slurp_file("$directory/blocks");
my $csv = slurp_file("$directory/csv");
my $list = slurp_file("$directory/list");

sub refused
{
	my ($name, $message, @args) = @_;
	my ($rc, $out, $err) = pcache($new, 'rebuild', '--reset', '--warm-from-files', @args);

	is($rc, 1, "$name: exit status");
	is($out, '', "$name: nothing on stdout");
	like($err, $message, "$name: message");
	return;
}

foreach my $case (
	[ 'a list that is cut', substr($list, 0, 500), qr/The list is damaged/ ],
	[ 'a list that goes on', $list . "\0", qr/The list is damaged/ ],
	[ 'a list with another CRC', $list ^ ("\0" x (length($list) - 1) . "\1"), qr/The list is damaged/ ],
	[ 'a list of another version', $list ^ ("\0" x 8 . "\2"), qr/format of another version/ ],
	[ 'the head of a list', 'PGHOTSET', qr/not a list of pg_hotset/ ],
	[ 'blocks that are cut', substr($blocks, 0, length($blocks) / 2 | 1), qr/is not complete|is damaged/ ],
	[ 'blocks with a line less', $blocks =~ s/\n\K[^\n]+\n\z//r, qr/is not complete: its first line promises \d+ lines/ ],
	[ 'blocks with letters', $blocks =~ s/\n\K\d/x/r, qr/Line 2 is damaged/ ],
	[ 'blocks with a sign', $blocks =~ s/\n\K\d/-1/r, qr/Line 2 is damaged/ ],
	[ 'blocks with a large number', $blocks =~ s/\n\K\d/99999999999/r, qr/Line 2 is damaged/ ],
	[ 'blocks with an overflow', $blocks =~ s/\n\K\d/99999999999999999999999/r, qr/Line 2 is damaged/ ],
	[ 'blocks with a null byte', $blocks =~ s/\n\K\d/\0/r, qr/null byte at offset \d+/ ],
	[ 'blocks with too large a promise', $blocks =~ s/<<\K\d+/99999999999999999999999/r, qr/neither a list/ ],
	[ 'CSV without a column', $csv =~ s/relforknumber/fork/r, qr/neither a list/ ],
	[ 'CSV with letters', $csv =~ s/\n\d+,\K\d+/x/r, qr/Line 2 is damaged/ ],
	[ 'CSV that is cut', $csv =~ s/\n\d+,\d+,\K.*\z//sr, qr/Line 2 is damaged/ ],
	[ 'another file', "Hello\n", qr/neither a list/ ],
	[ 'an empty file', '', qr/It is empty/ ],
	[ 'zeros', "\0" x 4096, qr/null byte at offset 0/ ])
{
	my ($name, $contents, $message) = @$case;

	write_file('bad', $contents);
	refused($name, qr/^pg_pcache: error: could not use file "\Q$directory\E\/bad" as a list of pages\npg_pcache: detail: .*$message/,
		"--list=$directory/bad");
}
refused('no such file', qr/could not open file "\Q$directory\E\/nothing": No such file/, "--list=$directory/nothing");
refused('a directory', qr/It is not a regular file/, "--list=$directory");
refused('no value', qr/option --list needs a value\n.*hint: Write it as --list=FILE/, '--list');
refused('with --relations', qr/options --relations and --list cannot be used together/, "--list=$directory/csv", '--relations=5/1259');
is((pcache($new, 'rebuild', "--list=$directory/csv"))[0], 1, 'without --warm-from-files: exit status');
like((pcache($new, 'save', "--list=$directory/csv"))[2], qr/option --list does not take a value with "save"/, 'save: message');
is(join(' ', (stat pool_file($new))[ 1, 7, 9 ]), $inode, 'what was refused has not touched the pool');
is(verify_json($new)->{pages}{kept}, $verdict->{pages}{kept}, '... and the pool has what it had');

# From the working directory, as text.
my ($rc, $out) = pcache($new, 'rebuild', '--warm-from-files', '--list=csv');
is($rc, 0, 'relative path: exit status');
like($out, qr/^listed: +\d+\nlisted twice: +0\nrelation is gone: +\d+\nbeyond end of file: +\d+\nunlogged: +0\nof system catalogs: +\d+\n/m, 'as text');
starts_warm($new, 'at the end', verify_json($new)->{pages}{kept});
$new->stop;

done_testing();
