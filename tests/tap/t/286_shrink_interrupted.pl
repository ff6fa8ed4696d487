
# Copyright (c) 2026, the persistent-cache developers

# A start with smaller shared_buffers moves pages.  It may be killed or stopped
# meanwhile, and the pool may have bad blocks and damaged descriptors.

use strict;
use warnings FATAL => 'all';

use List::Util qw(shuffle);
use PCache;
use PCache::HotAndCold;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_inject_module();

seed_random();

# 48MB are 6144 slots, and 24MB are 3072.
use constant FEWER => 3072;

my $given_up = qr/LOG:  persistent cache: the start was given up, because the server is to be stopped/;
my $attaching = qr/^the last start did not reach a consistent state, or pg_pcache was interrupted/;
my ($node, $pool, $offset, $verdict, $outcome, $expected);

for my $mode (qw(planned_restart always))
{
	$node = new_node($mode, mode => $mode, size => '48MB', shared_buffers => '48MB',
		conf => "shared_preload_libraries = 'pcache_inject'");
	$pool = pool_file($node);
	$node->start;
	make_hot_and_cold($node, 14000, 6400);
	$expected = hot_and_cold_sums($node);

	killed($mode);
	given_up($mode);
	bad_blocks($mode);
	two_slots($mode);
	if ($mode eq 'always')
	{
		killed_after_crash();
		given_up_after_crash();
	}
	$node->stop;
}

done_testing();

# Killed when it has moved a part of them: nothing is believed.
sub killed
{
	my ($mode) = @_;

	fill_slots();
	resize('24MB');
	is(verify_json($node)->{rc}, 0, "$mode, killed: it would be warm");
	die_while_moving("$mode, killed");
	$verdict = verify_json($node);
	is($verdict->{reason}, 'attaching', "$mode, killed: pg_pcache verify says why it is cold");
	resize('48MB');
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'cold', "$mode, killed: cold start");
	like($outcome->{reason}, $attaching, "$mode, killed: for the right reason");
	contents("$mode, killed");
	restart_warm_again("$mode, killed");
	return;
}

# Stopped when it has moved a part of them: each is in one place, so the next
# start is warm, with as many slots as before or fewer.
sub given_up
{
	my ($mode) = @_;
	my ($before, $evicted);

	fill_slots();
	resize('24MB');
	$before = verify_json($node);
	stop_while_moving("$mode, given up");
	$verdict = verify_json($node, '--pages');
	is($verdict->{rc}, 0, "$mode, given up: the next start is warm");
	is($verdict->{pages}{kept}, $before->{pages}{kept}, "$mode, given up: with as many pages");
	is($verdict->{pages}{duplicate}, 0, "$mode, given up: no page is there twice");

	# with all slots: only pages that had to make room are gone
	resize('48MB');
	$verdict = verify_json($node, '--pages');
	is($verdict->{pages}{duplicate}, 0, "$mode, given up, all slots: no page is there twice");
	$evicted = $verdict->{saved_pages} - $verdict->{pages}{kept};
	cmp_ok($evicted, '<=', 1024, "$mode, given up, all slots: few pages are gone");
	start_as_foretold("$mode, given up, all slots");
	is(cached('hot'), pages('hot'), "$mode, given up, all slots: the hot table is cached");
	contents("$mode, given up, all slots");

	# with fewer slots
	fill_slots();
	resize('24MB');
	$before = verify_json($node);
	stop_while_moving("$mode, given up again");
	start_as_foretold("$mode, given up, fewer slots");
	is($outcome->{kept}, $before->{pages}{kept}, "$mode, given up, fewer slots: as many pages");
	is(cached('hot'), pages('hot'), "$mode, given up, fewer slots: the hot table is cached");
	contents("$mode, given up, fewer slots");
	return;
}

# Bad blocks below slots that stay, with a page and without, and below slots
# that go, and below descriptors.  Nobody writes there, and nobody reads.
sub bad_blocks
{
	my ($mode) = @_;
	my $name = "$mode, bad blocks";
	my $pattern = pack 'a8192', 'do not touch me ' x 512;
	my ($at, @sealed, @low, @high, @ranges, $descriptors);

	fill_slots();
	$at = read_superblock($pool)->{blocks_offset};
	@sealed = sealed_slots($pool);
	@low = (shuffle grep { $_ < FEWER - 64 } @sealed)[0 .. 19];
	@high = (shuffle grep { $_ >= FEWER + 64 && $_ < 5000 } @sealed)[0 .. 9];
	# one of them, and some of the others, have no page
	write_descriptor($pool, $_, seq => 1) for @low[0 .. 4];
	$descriptors = DESCRIPTORS_OFFSET + (FEWER - 32) * DESCRIPTOR_SIZE;
	@ranges = ((map { $at + $_ * BLCKSZ + 512 . ':512' } @low, @high), "$descriptors:512");
	write_bytes($pool, $at + $_ * BLCKSZ, $pattern) for @low, @high;
	$descriptors = read_bytes($pool, $descriptors, 512);

	$node->append_conf('postgresql.conf', "pcache_inject.bad_blocks = '" . join(',', @ranges) . "'");
	resize('24MB');
	{
		local $ENV{PG_PCACHE_BAD_BLOCKS} = join ',', @ranges;
		start_as_foretold($name);
	}
	is($outcome->{kept}, FEWER - 28, "$name: all slots but those are used");
	is($outcome->{dropped}{'bad block'}, 15 + 10 + 8, "$name: each of them is counted");
	contents($name);
	$node->safe_psql('postgres', "SELECT pg_prewarm('cold'); UPDATE hot SET id = id WHERE id % 3 = 0; CHECKPOINT");
	contents("$name, in use");
	$node->stop;
	is(scalar(grep { read_bytes($pool, $at + $_ * BLCKSZ, BLCKSZ) ne $pattern } @low, @high), 0,
		"$name: nobody wrote to them");
	ok(read_bytes($pool, DESCRIPTORS_OFFSET + (FEWER - 32) * DESCRIPTOR_SIZE, 512) eq $descriptors,
		"$name: nor to descriptors");
	$node->adjust_conf('postgresql.conf', 'pcache_inject.bad_blocks', undef);
	$node->start;
	return;
}

# A page that is claimed by two slots, both of which stay or are moved, is not
# kept, and other damage is told apart.
sub two_slots
{
	my ($mode) = @_;
	my $name = "$mode, two slots";
	my ($hot, @hot, @cold, $twin);

	# what the pool remembers of bad descriptors is gone with the pool
	$hot = $node->safe_psql('postgres', q{SELECT pg_relation_filenode('hot')});
	fill_slots();
	@hot = sealed_slots($pool, sub { $_[0]->{rel_number} == $hot && $_[0]->{fork_number} == 0 });
	@cold = grep { $_ < FEWER } sealed_slots($pool, sub { $_[0]->{usage_count} < 2 });
	cmp_ok(scalar @hot, '>', 1000, "$name: hot pages");
	cmp_ok(scalar @cold, '>', 1000, "$name: cold pages");
	$twin = read_descriptor($pool, $hot[3]);
	write_descriptor($pool, $_, map { $_ => $twin->{$_} }
		  qw(spc_oid db_oid rel_number fork_number block_number flags page_lsn usage_count))
	  for $hot[700];
	$twin = read_descriptor($pool, $hot[4]);
	write_descriptor($pool, $cold[-1], map { $_ => $twin->{$_} }
		  qw(spc_oid db_oid rel_number fork_number block_number flags page_lsn));
	# no such relation, in slots that stay and that go
	write_descriptor($pool, $_, rel_number => 4000000000) for @cold[5, 6], @hot[800 .. 802];
	resize('24MB');
	start_as_foretold($name);
	# in addition, a cold one that has to make room claims what a hot one is
	is($outcome->{dropped}{duplicate}, 2 + 2, "$name: none of them is kept");
	is($outcome->{dropped}{'no such relation'}, 5, "$name: other pages are dropped");
	contents($name);
	return;
}

# In mode always a pool in use is believed, but not one of a start that was
# killed while it moved pages, some of which are to be kept dirty.
sub killed_after_crash
{
	crash();
	resize('24MB');
	is(verify_json($node)->{rc}, 0, 'crash, killed: it would be warm');
	die_while_moving('crash, killed');
	is(verify_json($node)->{reason}, 'attaching', 'crash, killed: the pool is not believed');
	$node->start;
	contents('crash, killed');
	restart_warm_again('crash, killed');
	return;
}

sub given_up_after_crash
{
	for my $size ('24MB', '48MB')
	{
		my $name = "crash, given up, $size";

		crash();
		resize('24MB');
		stop_while_moving($name);
		resize($size);
		start_as_foretold($name);
		contents($name);
		# once more: what is kept dirty was moved as such
		kill_all($node);
		start_as_foretold("$name, and a crash");
		contents("$name, and a crash");
		# and the files get it
		$node->safe_psql('postgres', 'CHECKPOINT');
		kill_all($node);
		set_mode($node, 'off');
		$node->start;
		contents("$name, from the files");
		$node->stop;
		set_mode($node, 'always');
		$node->start;
	}
	return;
}

sub crash
{
	fill_slots();
	$node->start;
	$node->safe_psql('postgres', q{
SET enable_indexscan = off;
UPDATE hot SET v = reverse(v) WHERE id % 7 = 0;
UPDATE cold SET v = reverse(v) WHERE id % 90 = 0;
SELECT pg_prewarm('hot') FROM generate_series(1, 4)});
	$expected = hot_and_cold_sums($node);
	wait_for_seals();
	kill_all($node);
	return;
}

# The server stops after this, with the hot table in slots that are to go.
sub fill_slots
{
	$node->stop if defined $node->{_pid};
	resize('48MB');
	warm_hot_and_cold($node, 'an empty pool');
	$node->stop;
	return;
}

sub die_while_moving
{
	my ($name) = @_;

	$node->append_conf('postgresql.conf', "pcache_inject.crash_at = 'persistent-cache-moving'");
	like(start_and_fail($node, $name), qr/dies at injection point "persistent-cache-moving"/,
		"$name: pages were being moved");
	$node->{_pid} = undef;
	$node->adjust_conf('postgresql.conf', 'pcache_inject.crash_at', undef);
	return;
}

sub stop_while_moving
{
	my ($name) = @_;
	my ($log, $pidfile);

	$offset = log_offset($node);
	$node->append_conf('postgresql.conf', "pcache_inject.hold_at = 'persistent-cache-moving'");
	start_nowait($node);
	$node->wait_for_log(qr/waits at injection point "persistent-cache-moving"/, $offset);
	$pidfile = $node->data_dir . '/postmaster.pid';
	system_or_bail('pg_ctl', '--wait', '--pgdata' => $node->data_dir, '--mode' => 'fast', 'stop');
	$node->{_pid} = undef;
	$node->adjust_conf('postgresql.conf', 'pcache_inject.hold_at', undef);
	$log = slurp_file($node->logfile, $offset);
	like($log, qr/$given_up\n.*DETAIL:  1024 pages of the pool have been moved to other slots\./,
		"$name: the start is given up, and says how far it came");
	unlike($log, qr/FATAL|PANIC|WARNING/, "$name: which is no failure");
	return;
}

sub resize
{
	$node->adjust_conf('postgresql.conf', 'shared_buffers', $_[0]);
	return;
}

sub start_as_foretold
{
	my ($name) = @_;

	($verdict, $outcome, $offset) = foretold_start($node, $name);
	pages_equal_disk($node, $name);
	return;
}

sub restart_warm_again
{
	my ($name) = @_;

	$node->safe_psql('postgres', "SELECT pg_prewarm('hot')");
	$node->stop;
	start_as_foretold("$name, then a clean stop");
	contents("$name, then a clean stop");
	return;
}

sub contents
{
	is(hot_and_cold_sums($node), $expected, "$_[0]: contents are right");
	return;
}

sub pages
{
	return $node->safe_psql('postgres', "SELECT pg_relation_size('$_[0]') / 8192");
}

sub cached
{
	return $node->safe_psql('postgres', qq{
SELECT count(*) FROM pg_buffercache WHERE relforknumber = 0
  AND relfilenode = pg_relation_filenode('$_[0]')});
}
