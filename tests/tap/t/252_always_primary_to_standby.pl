
# Copyright (c) 2026, the persistent-cache developers

# Mode always: a server that crashed goes on as a standby of another timeline,
# which does not have what its kept pages have.

use strict;
use warnings FATAL => 'all';

use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant SEGMENT => 1024 * 1024;

my %init = (allows_streaming => 1, extra => [ '--wal-segsize' => 1 ]);
my $conf = "wal_keep_size = 320MB\nwal_retrieve_retry_interval = 100ms\nwal_log_hints = on";

# --- A crashed primary, with commits that its standby never got; the standby
# was promoted.  Its WAL is damaged where the new timeline forks off.  Recovery
# takes that for the end of WAL, and turns to the new primary.
for my $case (
	[ 'damaged', sub { damage(@_) } ],
	# all that can be missing, but for the segment with the witness
	[ 'missing', sub { unlink segment_of(@_) or die $! } ])
{
	my ($name, $lose) = @$case;
	my $old = new_node("old_$name", mode => 'always', init => \%init, conf => $conf);
	my $new = PostgreSQL::Test::Cluster->new("new_$name");
	my ($fork, $expected, $log, $outcome);

	$name = "primary, WAL $name";
	$old->start;
	fill($old);
	$old->backup('b');
	$new->init_from_backup($old, 'b', has_streaming => 1);
	set_mode($new, 'off');
	$new->start;
	# begin a segment, so that what is lost of it is only of the old timeline
	$old->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$old->safe_psql('postgres', 'CHECKPOINT');
	$old->safe_psql('postgres', 'SELECT pg_switch_wal()') if $name =~ /missing/;
	$old->wait_for_replay_catchup($new);
	$new->stop;
	$fork = $old->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'});
	lost($old);
	seal_table_and_kill($old);
	$new->start;
	$new->promote;
	$new->safe_psql('postgres', 'UPDATE t SET v = v + 1 WHERE id % 10 = 0');
	$expected = contents($new);
	$lose->($old, 1, $fork);

	$old->enable_streaming($new);
	$old->set_standby_mode;
	is(verify_json($old)->{rc}, 0, "$name: the pool itself is fine");
	starts_again_cold($old, $new, qr/WARNING:  WAL ends at [0-9A-F\/]+, but it was durable up to/, $expected, $name);
	$old->stop;
	$new->stop;
}

# --- A crashed standby that had replayed more than another one, which was
# promoted.  It learns of the new timeline only after it has begun to recover.
{
	my $name = 'standby, new timeline forked off before';
	my $primary = new_node('primary', mode => undef, init => \%init, conf => $conf);
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	my $other = PostgreSQL::Test::Cluster->new('other');
	my ($fork, $expected);

	$primary->start;
	fill($primary);
	$primary->backup('b');
	for my $node ($standby, $other)
	{
		$node->init_from_backup($primary, 'b', has_streaming => 1);
		add_pool($node, mode => 'always') if $node == $standby;
		$node->start;
	}
	$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
	$primary->safe_psql('postgres', 'CHECKPOINT');
	$primary->wait_for_replay_catchup($_) for $standby, $other;
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$other->stop;
	$fork = $primary->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'});
	lost($primary);
	$primary->wait_for_replay_catchup($standby);
	seal_table_and_kill($standby);
	kill_all($primary);
	$other->start;
	$other->promote;
	$other->safe_psql('postgres', 'UPDATE t SET v = v + 1 WHERE id % 10 = 0');
	$expected = contents($other);
	damage($standby, 1, $fork);

	$standby->enable_streaming($other);
	is(verify_json($standby)->{rc}, 0, "$name: the pool itself is fine");
	starts_again_cold($standby, $other, qr/WARNING:  timeline 2 forked off at [0-9A-F\/]+, before what pages of the persistent cache contain/, $expected, $name);
	$standby->stop;
	$other->stop;
}

# --- A crashed primary with all of its WAL becomes a standby, and nothing is
# the matter: it is warm, and follows.  WAL ends in the middle of a record, which
# its standby did not get, either.  One that was promoted, and has not completed
# a checkpoint since, enters archive recovery at once.
for my $name ('primary, nothing lost', 'promoted, nothing lost')
{
	my $promoted = $name =~ /promoted/ ? 1 : 0;
	my $first = new_node("first_$promoted", mode => $promoted ? undef : 'always', init => \%init, conf => "$conf\nwal_buffers = 1MB");
	my $old = $promoted ? PostgreSQL::Test::Cluster->new('old_promoted') : $first;
	my $new = PostgreSQL::Test::Cluster->new("new_whole_$promoted");
	my ($offset, $expected, $at, $message, $control);

	$first->start;
	fill($first);
	$first->backup('b');
	if ($promoted)
	{
		$old->init_from_backup($first, 'b', has_streaming => 1);
		add_pool($old, mode => 'always');
		$old->start;
		# enough to write that the checkpoint of the promotion takes its time
		$first->safe_psql('postgres', 'INSERT INTO other SELECT i, repeat(chr(97), 500) FROM generate_series(1, 20000) i');
		$first->wait_for_replay_catchup($old);
	}
	$new->init_from_backup($first, 'b', has_streaming => 1);
	$new->enable_streaming($old);
	set_mode($new, 'off');
	$new->start;
	if ($promoted)
	{
		$first->stop;
		$old->promote;
	}
	lost($old);
	contents($old);
	wait_for_seals();
	# killed while it inserts a record over many segments
	$old->wait_for_replay_catchup($new);
	$at = $old->safe_psql('postgres', q{SELECT pg_current_wal_insert_lsn() - '0/0'});
	$message = $old->background_psql('postgres', on_error_stop => 0);
	$message->query_until(qr/begun/, q{\echo begun
SELECT pg_logical_emit_message(false, '', repeat('x', 200000000), false);
});
	for (1 .. 1000 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if -e segment_of($old, $promoted + 1, $at + 10 * SEGMENT);
		select undef, undef, undef, 0.001;
	}
	kill_all($old);
	eval { $message->quit };
	($control) = run_command([ 'pg_controldata', $old->data_dir ]);
	unlike($control, qr/Minimum recovery ending location:\s+0\/0$/m, "$name: no checkpoint since the promotion") if $promoted;
	cmp_ok((sort { $b <=> $a } map { $_->[0] } watermarks(pool_file($old)))[0], '>', $at + SEGMENT,
		"$name: WAL is durable beyond the last record");
	$expected = contents($new);
	like($expected, qr/^5668\|/, "$name: its standby has all rows");
	$new->promote;

	# PostgreSQL now waits for the rest of that record, which never comes; it
	# has what there is, and answers
	$old->enable_streaming($new);
	$old->set_standby_mode;
	$offset = log_offset($old);
	$old->start;
	is(start_outcome($old, $offset)->{start}, 'warm', "$name: warm start");
	is(contents($old), $expected, "$name: it answers, and has all rows");
	$old->wait_for_log(qr/new target timeline is @{[ $promoted + 2 ]}/, $offset);
	is(contents($old), $expected, "$name: it goes to the new timeline, and still has");
	$old->stop;
	$new->stop;
}
done_testing();

sub fill
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
CREATE TABLE t (id int PRIMARY KEY, v int, filler text);
INSERT INTO t SELECT i, 0, repeat('x', 100) FROM generate_series(1, 5000) i;
CREATE TABLE other (id int, filler text)});
	$node->safe_psql('postgres', 'VACUUM FREEZE; CHECKPOINT');
	return;
}

# Some segments of WAL that the others will not have.
sub lost
{
	my ($node) = @_;

	$node->safe_psql('postgres', $_) for
	  q{INSERT INTO t SELECT i, 0, repeat('y', 100) FROM generate_series(5001, 5668) i},
	  q{INSERT INTO other SELECT i, repeat('z', 500) FROM generate_series(1, 4000) i},
	  q{UPDATE t SET v = v + 100 WHERE id % 3 = 0},
	  q{VACUUM t};
	return;
}

sub contents
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(v), sum(hashtextextended(t::text, 0)) FROM t;
RESET ALL; SET enable_seqscan = off;
SELECT count(*), sum(v), sum(hashtextextended(t::text, 0)) FROM t WHERE id > 0});
}

sub seal_table_and_kill
{
	my ($node) = @_;

	contents($node);
	wait_for_seals();
	kill_all($node);
	return;
}

sub segment_of
{
	my ($node, $timeline, $lsn) = @_;

	return sprintf '%s/pg_wal/%08X%08X%08X', $node->data_dir, $timeline, $lsn >> 32, ($lsn & 0xFFFFFFFF) / SEGMENT;
}

# Spoil the first record at or after an LSN.
sub damage
{
	my ($node, $timeline, $lsn) = @_;
	my $at = $lsn % SEGMENT + 28;

	for (0 .. 63)
	{
		my $byte = read_bytes(segment_of($node, $timeline, $lsn), $at + $_, 1);
		write_bytes(segment_of($node, $timeline, $lsn), $at + $_, chr(ord($byte) ^ 0x55));
	}
	return;
}

# It begins to start again, with this message, is cold then, and has what the other
# server has.  If it lets anybody in before, the answer is right.
sub starts_again_cold
{
	my ($node, $primary, $message, $expected, $name) = @_;
	my $offset = log_offset($node);

	$node->start(fail_ok => 1);
	$node->wait_for_log(qr/persistent cache: starting cold|(?:re)?started (?:WAL )?streaming (?:WAL from primary )?at [0-9A-F\/]+ on timeline 2/, $offset);
	like(slurp_file($node->logfile, $offset), qr/$message.*persistent cache: starting cold/s, "$name: it starts again, cold, and says why");
	$node->_update_pid(1);
	has_what_new_has($node, $primary, $expected, $name);
	return;
}

sub has_what_new_has
{
	my ($node, $primary, $expected, $name) = @_;

	$primary->wait_for_replay_catchup($node);
	is(contents($node), $expected, "$name: it has what the new primary has");
	return;
}
