
# Copyright (c) 2026, the persistent-cache developers

# A primary whose pool is in memory stops without reading pages: their descriptors
# have the LSN of the shutdown checkpoint, marked as a bound.  A standby's pages may
# be ahead of its restartpoint, so their descriptors have their own LSNs.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	PERMANENT => 1,
	NAMES_BLOCKS => 2,
	BOUND => 4,
};

# The LSN of a page, given its first bytes, and as pg_controldata writes it.
sub page_lsn { my ($hi, $lo) = unpack 'LL', $_[0]; return ($hi << 32) + $lo }
sub text_lsn { my ($hi, $lo) = map { hex } split m{/}, $_[0]; return ($hi << 32) + $lo }

sub checkpoint_lsn
{
	my ($node) = @_;
	my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);
	return text_lsn($control =~ /^Latest checkpoint location: +(\S+)$/m);
}

# The pages of a stopped server that the next start may keep: slot, descriptor, LSN.
sub saved_pages
{
	my ($pool) = @_;
	my $blocks_offset = read_superblock($pool)->{blocks_offset};

	return map { {
		slot => $_,
		desc => read_descriptor($pool, $_),
		lsn => page_lsn(read_bytes($pool, $blocks_offset + $_ * BLCKSZ, 8)) } } sealed_slots($pool);
}

sub flagged { my ($flag, @pages) = @_; return grep { $_->{desc}{flags} & $flag } @pages }
sub unflagged { my ($flag, @pages) = @_; return grep { !($_->{desc}{flags} & $flag) } @pages }

# What the pool of a stopped primary says.  Returns the pages of permanent relations.
sub has_bounds
{
	my ($node, $name) = @_;
	my $bound = checkpoint_lsn($node);
	my @pages = saved_pages(pool_file($node));
	my @permanent = flagged(PERMANENT, @pages);

	cmp_ok(scalar @permanent, '>', 1000, "$name: pages were saved");
	is(scalar unflagged(BOUND, @pages), 0, "$name: all descriptors are marked as bounds");
	is(scalar(grep { $_->{desc}{page_lsn} != $bound } @pages), 0, "$name: the bound is the shutdown checkpoint");
	is(scalar(grep { $_->{lsn} > $bound } @permanent), 0, "$name: no page of a permanent relation has a later LSN");
	is(verify_json($node, '--pages')->{rc}, 0, "$name: verify --pages accepts them");
	return @permanent;
}

sub has_lsns
{
	my ($node, $name) = @_;
	my @pages = saved_pages(pool_file($node));
	my $restartpoint = checkpoint_lsn($node);

	cmp_ok(scalar @pages, '>', 1000, "$name: pages were saved");
	is(scalar flagged(BOUND, @pages), 0, "$name: no descriptor is marked as a bound");
	is(scalar(grep { $_->{desc}{page_lsn} != $_->{lsn} } @pages), 0, "$name: they have the LSNs of their pages");
	cmp_ok(scalar(grep { $_->{lsn} > $restartpoint } @pages), '>', 10, "$name: of which some are after the restartpoint");
	is(verify_json($node, '--pages')->{rc}, 0, "$name: verify --pages accepts them");
	return;
}

sub starts_warm
{
	my ($node, $name) = @_;
	my $verdict = verify_json($node);
	my $offset = log_offset($node);

	$node->start;
	my $outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason});
	is($outcome->{kept}, $verdict->{pages}{kept}, "$name: it keeps what verify foretold");
	is($outcome->{dropped}{$_} // 0, 0, "$name: no page is dropped for \"$_\"") for 'WAL not durable', 'no LSN';
	return;
}

# A GiST index that its transaction has built without WAL has LSN 1 in all pages.
my $tables = q{
BEGIN;
CREATE TABLE built (id int, p point);
INSERT INTO built SELECT i, point(i, -i) FROM generate_series(1, 5000) i;
CREATE INDEX built_p ON built USING gist (p);
COMMIT};
my $built = q{SET enable_seqscan = off; SELECT count(*), sum(id) FROM built WHERE p <@ box(point(1000, -1999), point(1999, -1000))};

for my $mode (qw(planned_restart always))
{
	my $node = new_node($mode, mode => $mode, init => { extra => ['--no-data-checksums'] },
		conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0");
	my $pool = pool_file($node);

	$node->start;
	load_data($node);
	$node->safe_psql('postgres', $tables);
	my $gist = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('built_p')});
	my $spgist = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('t_kinds_spgist')});
	my $heap = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('t_heap')});
	my $expected = checksums($node);
	warm_up($node);
	is($node->safe_psql('postgres', $built), '1000|1499500', "$mode: the index finds its rows");
	if ($mode eq 'always')
	{
		$node->safe_psql('postgres', 'CREATE EXTENSION pg_pcache');
		$node->poll_query_until('postgres', 'SELECT queue_length = 0 FROM pg_stat_pcache')
		  or BAIL_OUT('the sealer does not come to an end');
		my @sealed = map { read_descriptor($pool, $_) } sealed_slots($pool);
		cmp_ok(scalar @sealed, '>', 1000, "$mode: pages are sealed while the server runs");
		is(scalar(grep { $_->{flags} & BOUND } @sealed), 0, "$mode: and these descriptors have LSNs of pages");
	}
	$node->stop;

	my @pages = has_bounds($node, $mode);
	my $bound = checkpoint_lsn($node);
	cmp_ok(scalar(grep { $_->{lsn} < $bound } @pages), '>', 1000, "$mode: nearly all pages have an earlier one");
	my @built = grep { $_->{desc}{rel_number} == $gist } @pages;
	cmp_ok(scalar @built, '>', 10, "$mode: pages of an index that was built without WAL are saved");
	is(scalar(grep { $_->{lsn} != 1 } @built), 0, "$mode: they have the LSN of such a build");
	is_deeply([ map { "$_->{desc}{rel_number} $_->{desc}{block_number}" } flagged(NAMES_BLOCKS, @pages) ], ["$spgist 0"],
		"$mode: the one page that names blocks is the metapage of an SP-GiST index");

	# the bound itself is fine, and what is beyond it is not
	my ($rel) = $heap =~ /(\d+)$/;
	my ($page) = grep { $_->{desc}{rel_number} == $rel && $_->{desc}{fork_number} == 0 } @pages;
	my @places = ([ $pool, read_superblock($pool)->{blocks_offset} + $page->{slot} * BLCKSZ ],
		[ $node->data_dir . "/$heap", $page->{desc}{block_number} * BLCKSZ ]);
	for my $case ([ $bound, 0 ], [ $bound + 8, 1 ], [ $page->{lsn}, 0 ])
	{
		my ($lsn, $rc) = @$case;
		my $name = sprintf '%s: a page whose LSN is the bound %+d', $mode, $lsn - $bound;

		write_bytes(@$_, pack 'LL', $lsn >> 32, $lsn & 0xFFFFFFFF) for @places;
		my $verdict = verify_json($node, '--pages');
		is($verdict->{rc}, $rc, "$name: exit status of verify --pages");
		is($verdict->{compared}{impossible}, $rc, "$name: and its count");
		like($verdict->{stderr}, $rc ? qr/page in slot $page->{slot}: / : qr/^$/, "$name: and what it says");
	}

	starts_warm($node, $mode);
	is(checksums($node), $expected, "$mode: contents are right");
	is($node->safe_psql('postgres', $built), '1000|1499500', "$mode: the index finds its rows after a restart");

	# A crash, when most descriptors still have the bound.
	if ($mode eq 'always')
	{
		my @still = grep { read_descriptor($pool, $_)->{flags} & BOUND } sealed_slots($pool);
		cmp_ok(scalar @still, '>', 1000, "$mode: pages that have not changed keep their descriptors");
		$node->safe_psql('postgres', 'UPDATE t_heap SET grp = grp + 1 WHERE id % 50 = 0');
		$expected = checksums($node, tables => [qw(t_heap t_toast t_kinds)]);
		wait_for_seals();
		kill_all($node);
		is(verify_json($node, '--pages')->{rc}, 0, "$mode, after a crash: verify --pages accepts all pages");
		starts_warm($node, "$mode, after a crash");
		contents_right($node, $expected, "$mode, after a crash");
		is($node->safe_psql('postgres', $built), '1000|1499500', "$mode, after a crash: the index finds its rows");
	}
	$node->stop;
}

# A standby that stops without a restartpoint.  Then it is promoted, and the old
# primary becomes a standby.
for my $mode (qw(planned_restart always))
{
	my $primary = new_node("primary_$mode", mode => $mode, init => { allows_streaming => 1 },
		conf => "wal_keep_size = 320MB\nwal_log_hints = on");
	$primary->start;
	load_data($primary);
	$primary->backup('b');
	my $standby = PostgreSQL::Test::Cluster->new("standby_$mode");
	$standby->init_from_backup($primary, 'b', has_streaming => 1);
	add_pool($standby, mode => $mode);
	$standby->start;
	$primary->safe_psql('postgres', 'UPDATE t_heap SET filler = reverse(filler) WHERE id % 4 = 0');
	$primary->wait_for_replay_catchup($standby);
	my $expected = checksums($primary, tables => [qw(t_heap t_toast t_kinds)]);
	warm_up($standby);
	$standby->stop;
	has_lsns($standby, "$mode, standby");
	starts_warm($standby, "$mode, standby");
	contents_right($standby, $expected, "$mode, standby");

	$primary->stop;
	has_bounds($primary, "$mode, primary");
	$standby->promote;
	$standby->safe_psql('postgres', 'UPDATE t_heap SET filler = reverse(filler) WHERE id % 3 = 0');
	$expected = checksums($standby, tables => [qw(t_heap t_toast t_kinds)]);

	# The old primary keeps pages with bounds, and replays from that checkpoint.
	$primary->append_conf('postgresql.conf', "recovery_target_timeline = 'latest'");
	$primary->enable_streaming($standby);
	$primary->set_standby_mode;
	starts_warm($primary, "$mode, primary that becomes a standby");
	$standby->wait_for_replay_catchup($primary);
	contents_right($primary, $expected, "$mode, primary that becomes a standby");
	warm_up($primary);
	$primary->stop;
	has_lsns($primary, "$mode, primary that has become a standby");
	starts_warm($primary, "$mode, primary that has become a standby, again");
	contents_right($primary, $expected, "$mode, primary that has become a standby, again");
	$primary->stop;

	warm_up($standby);
	$standby->stop;
	has_bounds($standby, "$mode, promoted");
	starts_warm($standby, "$mode, promoted");
	contents_right($standby, $expected, "$mode, promoted");
	$standby->stop;
}

done_testing();
