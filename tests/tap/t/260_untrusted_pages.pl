
# Copyright (c) 2026, the persistent-cache developers

# A page that was read although it could not be verified (zero_damaged_pages,
# ignore_checksum_failure, a visibility map) is not kept: after a restart its
# file is asked again, with the settings of that time.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant DAMAGED_BLOCK => 5;

my $INVALID = qr/invalid page in block @{[ DAMAGED_BLOCK ]} of relation/;
my $COUNT = 'SELECT count(filler) FROM t_bad';
my $WRONG = q{SELECT count(*) FROM t_bad WHERE filler <> repeat(md5(id::text), 12)};

# How a page gets into shared buffers although it is damaged, and what a query
# says then.
my @ways = (
	{
		name => 'zero_damaged_pages',
		read => "SET zero_damaged_pages = on; $COUNT",
		answer => sub { $_[0] < 1000 && $_[0] > 900 },
	},
	{
		name => 'ignore_checksum_failure',
		read => "SET ignore_checksum_failure = on; $WRONG",
		answer => sub { $_[0] == 1 },
	});

for my $mode (qw(planned_restart always))
{
	# reads are completed by I/O workers, or by the reader
	my $node = new_node($mode, mode => $mode,
		conf => 'io_method = ' . ($mode eq 'always' ? 'worker' : 'sync')
		  . "\nsynchronous_commit = on\nfull_page_writes = on");
	my @stops = ([ 'clean stop', sub { $node->stop } ]);

	push @stops, [ 'kill -9', sub {
		is($node->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, 'all that can be sealed is sealed');
		kill_all($node);
	} ] if $mode eq 'always';

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
	is($node->safe_psql('postgres', 'SHOW data_checksums'), 'on', "$mode: data checksums are on");

	my ($file, $good, $bad) = make_table($node);

	for my $way (@ways)
	{
		for my $stop (@stops)
		{
			for my $repaired (0, 1)
			{
				my $name = "$mode, $way->{name}, $stop->[0], " . ($repaired ? 'repaired' : 'not repaired');
				my ($answer, $offset, $stderr, $outcome);

				# the page comes from the file, and nothing else does
				$node->stop;
				write_bytes($file, DAMAGED_BLOCK * BLCKSZ, $bad);
				is((pcache($node, 'rebuild', '--reset'))[0], 0, "$name: an empty pool");
				$node->start;
				$answer = $node->safe_psql('postgres', $way->{read});
				ok($way->{answer}->($answer), "$name: the damaged page was read ($answer)");
				$offset = log_offset($node);
				$stop->[1]->();
				like(slurp_file($node->logfile, $offset),
					qr/persistent cache: 1 page was not saved because it had been read with errors/,
					"$name: the log says so") if $stop->[0] eq 'clean stop';

				write_bytes($file, DAMAGED_BLOCK * BLCKSZ, $good) if $repaired;
				$offset = log_offset($node);
				$node->start;
				is(start_outcome($node, $offset)->{start}, 'warm', "$name: warm start");
				$node->psql('postgres', "$COUNT", stdout => \$answer, stderr => \$stderr);
				if ($repaired)
				{
					is($answer, 1000, "$name: all rows are there");
					is($node->safe_psql('postgres', $WRONG), 0, "$name: and right");
				}
				else
				{
					like($stderr, $INVALID, "$name: the damage is found again");
					is($answer, '', "$name: there is no answer");
					# nobody has written the page, which was only read
					$node->stop;
					$node->command_checks_all([ 'pg_checksums', '--check', '-D', $node->data_dir ],
						1, [qr/Bad checksums:\s+1\n/], [qr/checksum verification failed/],
						"$name: pg_checksums finds it as well");
					$node->start;
				}
			}
		}
	}

	# Once the page was read again properly it is as good as any other.
	$node->stop;
	write_bytes($file, DAMAGED_BLOCK * BLCKSZ, $bad);
	is((pcache($node, 'rebuild', '--reset'))[0], 0, "$mode, read again: an empty pool");
	$node->start;
	my $heap_pages = $node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS pg_buffercache;
SET zero_damaged_pages = on;
SELECT count(filler) FROM t_bad;
SELECT pg_relation_size('t_bad') / 8192}) =~ s/.*\n//sr;
	write_bytes($file, DAMAGED_BLOCK * BLCKSZ, $good);
	$node->safe_psql('postgres', q{
SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('t_bad') AND relforknumber = 0 AND relblocknumber = } . DAMAGED_BLOCK);
	is($node->safe_psql('postgres', $COUNT), 1000, "$mode, read again: all rows are there");
	# the buffer that it was in gets another page, as all of them do
	$node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS pg_prewarm;
CREATE TABLE scratch AS SELECT i, repeat('x', 1500) FROM generate_series(1, 25000) i;
SELECT pg_prewarm('scratch');
DROP TABLE scratch});
	my $offset = log_offset($node);
	$node->restart;
	unlike(slurp_file($node->logfile, $offset), qr/read with errors/,
		"$mode, read again: nothing is left of it");
	is($node->safe_psql('postgres', $COUNT), 1000, "$mode, read again: all rows are there after a restart");
	$stops[-1][1]->();
	$node->start;
	is( $node->safe_psql('postgres', q{
SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_bad') AND relforknumber = 0}),
		$heap_pages, "$mode, read again: all of the table is kept");
	is($node->safe_psql('postgres', $COUNT), 1000, "$mode, read again: all rows are still there");

	# A page that was read with errors, and properly changed since.  It is not
	# kept either; what was committed comes from WAL, and from the file.
	if ($mode eq 'always')
	{
		for my $checkpoint (0, 1)
		{
			my $name = "$mode, changed, " . ($checkpoint ? 'checkpoint' : 'no checkpoint');

			($file, $good, $bad) = make_table($node);
			$node->stop;
			write_bytes($file, DAMAGED_BLOCK * BLCKSZ, $bad);
			is((pcache($node, 'rebuild', '--reset'))[0], 0, "$name: an empty pool");
			$node->start;
			$node->safe_psql('postgres', "SET ignore_checksum_failure = on; UPDATE t_bad SET id = id + 10000 WHERE ctid = '(@{[ DAMAGED_BLOCK ]},1)'");
			$node->safe_psql('postgres', 'CHECKPOINT') if $checkpoint;
			is($node->safe_psql('postgres', 'SELECT pg_pcache_seal()'), 0, "$name: all that can be sealed is sealed");
			kill_all($node);
			my $offset = log_offset($node);
			$node->start;
			is(start_outcome($node, $offset)->{start}, 'warm', "$name: warm start");
			is($node->safe_psql('postgres', $COUNT), 1000, "$name: all rows are there");
			is($node->safe_psql('postgres', 'SELECT count(*) FROM t_bad WHERE id > 10000'),
				1, "$name: the change is there");
		}
	}

	# A visibility map is taken for empty if it cannot be verified.
	my ($vm, $broken);
	my $fetches = q{SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT count(id) FROM t_bad WHERE id > 0};

	($file) = make_table($node);
	$node->stop;
	$vm = read_bytes("${file}_vm", 0, BLCKSZ);
	$broken = $vm;
	substr($broken, 4000, 1) = 'X';
	write_bytes("${file}_vm", 0, $broken);
	is((pcache($node, 'rebuild', '--reset'))[0], 0, "$mode, visibility map: an empty pool");
	$node->start;
	like($node->safe_psql('postgres', $fetches), qr/Heap Fetches: 1000/,
		"$mode, visibility map: it was taken for empty");
	$stops[-1][1]->();
	write_bytes("${file}_vm", 0, $vm);
	$node->start;
	unlike($node->safe_psql('postgres', $fetches), qr/Heap Fetches: 1000/,
		"$mode, visibility map: the repaired one is used");
	$node->stop;
}

done_testing();

# A table of 1000 rows, all of them on disk.  Returns its file, and what a page
# of it is and could be: with another letter in the text of its last row.
sub make_table
{
	my ($node) = @_;
	my ($file, $good, $bad);

	$node->safe_psql('postgres', q{
DROP TABLE IF EXISTS t_bad;
CREATE TABLE t_bad (id int PRIMARY KEY, filler text) WITH (fillfactor = 100);
ALTER TABLE t_bad ALTER filler SET STORAGE PLAIN;
INSERT INTO t_bad SELECT i, repeat(md5(i::text), 12) FROM generate_series(1, 1000) i});
	$node->safe_psql('postgres', 'VACUUM (FREEZE, ANALYZE) t_bad');
	$node->safe_psql('postgres', 'CHECKPOINT');
	$file = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t_bad')});
	$good = read_bytes($file, DAMAGED_BLOCK * BLCKSZ, BLCKSZ);
	$bad = $good;
	substr($bad, 8000, 1) = 'X';
	return ($file, $good, $bad);
}
