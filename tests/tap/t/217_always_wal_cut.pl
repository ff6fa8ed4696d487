
# Copyright (c) 2026, the persistent-cache developers

# Mode always: WAL that is damaged before the watermark.  Recovery takes that
# for the end of WAL, but the pool has pages of a later time.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $segment_size = 16 * 1024 * 1024;
my $node = new_node('main', mode => 'always');
my $saved = PostgreSQL::Test::Utils::tempdir . '/saved';

$node->start;
load_data($node);

# Where WAL is now: file and offset.
sub wal_position
{
	my ($lsn, $file) = split /\|/, $node->safe_psql('postgres',
		q{SELECT lsn - '0/0', pg_walfile_name(lsn) FROM pg_current_wal_insert_lsn() lsn});
	return ($node->data_dir . "/pg_wal/$file", $lsn % $segment_size);
}

for my $case (
	[ 'pages of a later time', sub {
		$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 3 = 1');
		my @at = wal_position();
		$node->safe_psql('postgres', "UPDATE t_heap SET grp = grp + 1 WHERE id % 3 = $_") for 1 .. 2;
		return @at;
	} ],
	# no page has an LSN beyond the damage, but hint bits tell of the commit
	[ 'hint bits of a later time', sub {
		my ($first, $second) = map { $node->background_psql('postgres') } 1 .. 2;

		# no dead rows, so that reading prunes no page
		$first->query_safe('BEGIN; INSERT INTO t_heap SELECT -id, grp, filler FROM t_heap WHERE id <= 20');
		$second->query_safe('BEGIN; INSERT INTO t_heap SELECT -id, grp, filler FROM t_heap WHERE id BETWEEN 21 AND 40');
		my @at = wal_position();
		$_->query_safe('COMMIT') for $first, $second;
		$_->quit for $first, $second;
		$node->safe_psql('postgres', 'SELECT sum(grp) FROM t_heap');
		return @at;
	} ])
{
	my ($name, $change) = @$case;

	# nothing to write to disk or to vacuum in what follows
	$node->safe_psql('postgres', 'VACUUM; CHECKPOINT');
	my ($wal, $offset) = $change->();
	seal_and_kill($node);
	write_bytes($wal, $offset + 4, chr(ord(read_bytes($wal, $offset + 4, 1)) ^ 0x55));
	system_or_bail('cp', '-a', $node->data_dir, $saved);

	my $lost = checksums_without_pool($node, tables => [LOGGED]);
	put_back($node, $saved);
	is(verify_json($node)->{rc}, 0, "$name: the pool itself is fine");
	my $before = log_offset($node);
	$node->start;
	like(slurp_file($node->logfile, $before), qr/WARNING:  WAL ends at [0-9A-F\/]+, but it was durable up to [0-9A-F\/]+, and pages.*HINT:  WAL is damaged or missing/s,
		"$name: the server begins to start again");
	is(start_outcome($node, $before)->{start}, 'cold', "$name: and is cold then");
	is(checksums($node, tables => [LOGGED]), $lost, "$name: contents as without the pool");
	$node->safe_psql('postgres', 'CHECKPOINT');
	my ($expected, $valid) = change_and_crash($node);
	warm_after_crash($node, $valid, "$name, mended", ratio => 0.9);
	contents_right($node, $expected, "$name, mended");
	system_or_bail('rm', '-rf', $saved);
}
$node->stop;
done_testing();
