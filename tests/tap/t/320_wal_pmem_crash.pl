# Copyright (c) 2026, the persistent-cache developers

# wal_sync_method = pmem and kill -9: an external client logs each commit that
# was acknowledged, with its LSN.  After each crash all of them are there, and
# WAL ends where it should: nothing that recycled segments hold from earlier
# is replayed.
#
#   PCACHE_WAL_ROUNDS   how many crashes (12)
#   PCACHE_WAL_SEED     seed of the run (random; printed)

use strict;
use warnings FATAL => 'all';

use PCache;
use PCache::Wal;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

local $ENV{PMEM_IS_PMEM_FORCE} = '1';

use constant { PAGE => 8192, SEGMENT => 1024 * 1024 };

my $rounds = $ENV{PCACHE_WAL_ROUNDS} || 12;
my $seed = $ENV{PCACHE_WAL_SEED} || int(rand(2**31));
my $node = new_wal_node('main', segsize => 1,
	conf => "max_wal_size = 4MB\nmin_wal_size = 4MB\nwal_level = minimal\nmax_wal_senders = 0\nlog_checkpoints = off\ncheckpoint_timeout = 1h");
my $acked = 0;
my $acked_lsn = 0;

note "PCACHE_WAL_SEED=$seed";
srand $seed;

$node->start;
$node->safe_psql('postgres', q{
CREATE TABLE acked (id bigint PRIMARY KEY, filler text);
CREATE TABLE noise (id int, filler text)});

# Segments full of valid records, to be recycled.
for (1 .. 4)
{
	$node->safe_psql('postgres',
		q{INSERT INTO noise SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 2500) g; TRUNCATE noise; CHECKPOINT});
}

for my $round (1 .. $rounds)
{
	my $how = (qw(all all postmaster immediate))[ int rand 4 ];
	my $filler = (1, 24, 328, 3000)[ int rand 4 ];

	my @runs = start_clients($node, clients => 3, filler => $filler, switch => 0.005);
	select undef, undef, undef, 0.1 + rand 0.5;
	$node->safe_psql('postgres', 'CHECKPOINT') if rand() < 0.3;

	if ($how eq 'all') { kill_all($node) }
	elsif ($how eq 'immediate') { $node->stop('immediate') }
	else { kill_postmaster() }
	my ($ids, $lsn) = acknowledged(@runs);
	$acked_lsn = $lsn if $lsn > $acked_lsn;
	$acked += @$ids;

	my $offset = log_offset($node);
	$node->start;
	my $log = slurp_file($node->logfile, $offset);
	my ($end) = $log =~ /redo done at ([0-9A-F]+\/[0-9A-F]+)/;
	my ($reason) = $log =~ /LOG:  ((?:invalid|record with|unexpected|incorrect|there is no|missing|out-of|contrecord)[^\n]*)/;

	is(missing($node, $ids), 0, "round $round ($how, filler $filler): none of " . @$ids . ' acknowledged commits is lost');
	cmp_ok(lsn_number($node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()')), '>', $acked_lsn,
		"round $round: WAL goes on behind the last flush that was promised");
	note "redo done at $end; end of WAL: " . ($reason // 'not logged') if defined $end;
	tail_is_zero() if $round % 3 == 0;
	$node->safe_psql('postgres', 'DELETE FROM acked') if $round % 5 == 0;
}
cmp_ok($acked, '>', 10 * $rounds, 'commits were acknowledged');
end_of_wal();
mid_page();
done_testing();

# Kill the postmaster only: its children go by themselves.
sub kill_postmaster
{
	my $postmaster = $node->{_pid};
	my $data = $node->data_dir;

	$node->kill9;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $alive = grep { (readlink($_) // '') eq $data } glob '/proc/[0-9]*/cwd';

		# a zombie still counts as a server
		last if !$alive && !-e "/proc/$postmaster";
		select undef, undef, undef, 0.1;
	}
	unlink $node->data_dir . '/postmaster.pid';
	return;
}

# Behind the end of WAL the page is zeros, as it is with the other methods,
# although the segment was full of old records.
sub tail_is_zero
{
	my $session = $node->background_psql('postgres');

	$session->query_safe(q{INSERT INTO noise VALUES (1, 'x')});
	my ($flushed, $inserted) = split /\|/,
	  $session->query_safe('SELECT pg_current_wal_flush_lsn(), pg_current_wal_insert_lsn()');
	my ($file, $offset) = segment_of($node, $flushed, 1);
	my $in_page = $offset % PAGE;

	$session->quit;
	return if $in_page == 0 || $flushed ne $inserted;
	my $tail = PCache::read_bytes($file, $offset, PAGE - $in_page);
	# a background process may have added something meanwhile
	return
	  if $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()') ne $inserted;
	ok($tail !~ /[^\0]/, 'the rest of the last page is zeros');
	return;
}

# Where a logical message of a length ends if it is inserted at a place.
sub message_end
{
	my ($at, $length) = @_;
	my $data = 24 + 2 + $length;
	my $left = 24 + ($data < 256 ? 2 : 5) + $data;
	my $header = sub { $_[0] % SEGMENT ? 24 : 40 };

	$left = ($left + 7) & ~7;
	$at += $header->($at) if $at % PAGE == 0;
	while ($left > PAGE - $at % PAGE)
	{
		$left -= PAGE - $at % PAGE;
		$at += PAGE - $at % PAGE;
		$at += $header->($at);
	}
	return $at + $left;
}

# What the page at or behind an LSN holds.
sub page_behind
{
	my ($at) = @_;
	my $next = $at + -$at % PAGE;
	my ($file) = segment_of($node, sprintf('%X/%X', $next >> 32, $next & 0xffffffff), 1);

	return -e $file ? PCache::read_bytes($file, $next % SEGMENT, PAGE) : '';
}

# Go on to a segment that was recycled, and is full of old records.
sub recycled_segment
{
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET max_wal_size');
	$node->reload;
	for (1 .. 20)
	{
		$node->safe_psql('postgres',
			q{INSERT INTO noise SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 2500) g; TRUNCATE noise; CHECKPOINT; SELECT pg_switch_wal(); SELECT pg_logical_emit_message(false, 'p', 'm', true)});
		my $at = lsn_number($node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()'));

		# much is left of it, and the messages of a test need little
		return
		  if $at % SEGMENT < SEGMENT / 4
		  && page_behind($at) =~ /[^\0]/
		  && page_behind($at + 40 * PAGE) =~ /[^\0]/;
	}
	die 'no recycled segment comes';
}

# Crashes when the last record ends at a page's end, at a segment's end, and in
# between, each on segments that were recycled: recovery goes on there exactly.
sub end_of_wal
{
	my $again = 0;

	for my $target (0, 32, 40, 48, 4096, 8184, 'segment')
	{
		recycled_segment();
		# a segment that is full must not bring a checkpoint about
		$node->safe_psql('postgres', q{ALTER SYSTEM SET max_wal_size = '1GB'});
		$node->reload;
		my $session = $node->background_psql('postgres');
		my $at = lsn_number($session->query_safe('SELECT pg_current_wal_insert_lsn()'));
		my $goal = sub {
			$target eq 'segment' ? $_[0] % SEGMENT == 0 : $_[0] % PAGE == $target;
		};
		my $messages = 0;

		while (!$goal->($at) || !$messages)
		{
			my ($length) = grep { $goal->(message_end($at, $_)) } 1 .. 3 * PAGE;
			my $expected;

			$length //= 2 * PAGE;
			$expected = message_end($at, $length);
			$session->query_safe("SELECT pg_logical_emit_message(false, 'p', repeat('m', $length), true)");
			$at = lsn_number($session->query_safe('SELECT pg_current_wal_flush_lsn()'));
			is($at, $expected, "message of $length bytes") if $at != $expected;
			die 'no way to the end of WAL that was asked for' if ++$messages > 500;
		}
		kill_all($node);
		eval { $session->quit };

		my $old = page_behind($at) =~ /[^\0]/;
		my ($control) = run_command([ 'pg_controldata', $node->data_dir ]);
		my ($checkpoint) = $control =~ /^Latest checkpoint's REDO location: +(\S+)$/m;

		$node->start;
		if (lsn_number($checkpoint) >= $at && $again++ < 5)
		{
			note "end of WAL at $target: a checkpoint came after it, once more";
			redo;
		}
		my $redo = lsn_number($node->safe_psql('postgres', 'SELECT redo_lsn FROM pg_control_checkpoint()'));
		$at += $at % SEGMENT ? 24 : 40 if $at % PAGE == 0;
		is($redo, $at, "end of WAL at $target: recovery goes on there");
		ok($old, "end of WAL at $target: the page behind it had old contents") if $target ne 'segment';
	}
	return;
}

# Records of the same length, written again at the same place after a crash
# that lost the first of them: what was behind it is not replayed, because
# the first write to a page clears its rest.
sub mid_page
{
	my $session = $node->background_psql('postgres');
	my ($from, $file, $offset, $lsn, $bytes);

	$session->query_safe('CHECKPOINT; TRUNCATE noise');
	do
	{
		$session->query_safe(q{SELECT pg_logical_emit_message(false, 'p', repeat('x', 1200), true)});
		$from = $session->query_safe('SELECT pg_current_wal_insert_lsn()');
	} while (lsn_number($from) % PAGE < 200 || lsn_number($from) % PAGE > 1500);

	# what crash recovery writes first has the length of a checkpoint record
	# or of an end-of-recovery record, so leave records behind both
	$session->query_safe(qq{INSERT INTO noise VALUES ($_, 'stale')}) for 1 .. 20;
	($file, $offset) = segment_of($node, $from, 1);
	kill_all($node);
	eval { $session->quit };

	# lose the first record, as a power cut may do
	$bytes = PCache::read_bytes($file, $offset, 24);
	PCache::write_bytes($file, $offset, "\0" x 24);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM noise'), 0, 'recovery ends at the lost record');
	$lsn = $node->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	($file, $offset) = segment_of($node, $lsn, 1);
	my $tail = PCache::read_bytes($file, $offset, PAGE - $offset % PAGE);
	ok($tail !~ /stale/, 'nothing of the lost records is left on the page');
	kill_all($node);
	$node->start;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM noise'), 0, 'they do not come back with the next crash');
	$node->stop;
	return;
}
