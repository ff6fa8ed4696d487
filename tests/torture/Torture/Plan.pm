
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Plan - what does a seed choose?

=head1 DESCRIPTION

What a round is to do is drawn here, before anything is started.  The rest, such
as how long to wait in a recovery, is drawn where it is needed.  A seed must go
on meaning the same round, or a failed one cannot be repeated.  So numbers are
drawn in this order, whatever --set says, and a new choice is drawn last.

=cut

package Torture::Plan;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Fcntl;

use Torture::State;
use Workload qw(pick number);

our @EXPORT = qw(make_plan plan_text count_plan);

# The plan of a round, after srand(): a reference to a hash.
#
#   mode, shared_buffers, checksums, segsize (MB)   how the cluster is made
#   fewer     starts after a crash have half as many buffers as the crashed server,
#             or twice as many, in turn
#   conf      settings for postgresql.conf
#   scale     of pgbench
#   load      what Workload is to do, see there; queue: with consumers of a queue
#   cycles    crashes and recoveries before the last crash
#   duration  seconds of work before the last crash; half of it before the others
#   kill      how the last crash comes about, see Torture::Crash
#   again     all are killed once more, while the server recovers from the last crash
sub make_plan
{
	my $s = random_settings();
	$s->{conf} = { $server->supported(%{ $s->{conf} }) };
	for my $k (grep { $_ ne 'site' } keys %set)
	{
		if (exists $s->{load}{$k}) { $s->{load}{$k} = $set{$k} }
		elsif (exists $s->{$k}) { $s->{$k} = $set{$k} }
		else { $s->{conf}{$k} = $set{$k} }
	}
	# every second time without crashes
	@$s{qw(mode kill)} = qw(planned_restart stop)
	  if $s->{load}{stress} && !$opt{whole} && !$set{mode} && !$set{kill} && $round_seed % 2 == 0;
	$s->{load}{brin} = 0 if $s->{conf}{full_page_writes} eq 'off';
	$s->{load}{drop_checkpoint} = 1 if $s->{conf}{wal_level} eq 'minimal';
	$s->{load}{moves} = 0 if $opt{whole} && $s->{conf}{wal_level} eq 'minimal';
	$s->{cycles}++ if $s->{kill} eq 'recovery' && $s->{cycles} == 0;
	$dram = $opt{whole} && $s->{kill} eq 'reboot';
	$s->{conf}{wal_sync_method} = 'fdatasync' if $dram && ($s->{conf}{wal_sync_method} // '') eq 'pmem';
	return $s;
}

# All of it as the seed has it.
sub random_settings
{
	my %s;
	my $wal_level = pick('minimal', 'replica', 'logical');
	$s{shared_buffers} = pick('16MB', '24MB', '32MB', '64MB', '256MB');
	$s{checksums} = pick(0, 1);
	$s{segsize} = pick(1, 4, 16);
	$s{scale} = number(1, 4);
	$s{duration} = 1 + rand 6;
	$s{conf} = {
		wal_level => $wal_level,
		max_wal_senders => $wal_level eq 'minimal' ? 0 : 5,
		full_page_writes => pick('on', 'on', 'off'),
		wal_log_hints => pick('on', 'off'),
		'pcache.worker_delay' => pick(10, 20, 50, 100, 200, 1000),
		io_method => pick('worker', 'sync'),
		synchronous_commit => pick('off', 'local', 'on'),
		wal_compression => pick('off', 'lz4'),
		max_wal_size => pick('64MB', '256MB', '1GB'),
		min_wal_size => '32MB',
		wal_buffers => pick('-1', '64kB'),
		bgwriter_lru_maxpages => pick(0, 100, 1000),
		bgwriter_delay => pick('10ms', '200ms'),
		checkpoint_completion_target => pick(0, 0.5, 0.9),
		commit_siblings => pick(0, 5),
		wal_skip_threshold => pick('0', '64kB', '2MB'),
		recovery_prefetch => pick('try', 'off'),
	};
	$s{kill} = pick('all', 'all', 'all', 'immediate', 'immediate', 'backend', 'worker', 'checkpointer', 'checkpoint', 'recovery');
	$s{conf}{restart_after_crash} = pick('off', 'off', 'on');
	$s{load} = { checkpoints => pick(0, 0, 0.004, 0.015), databases => pick(0, 0.006, 0.02),
		rows => pick(300, 1000, 3000),

		# consumers of a queue, besides the rest of the load or without it
		queue => pick('off', 'on', 'on', 'only'),

		# many sessions, local buffers, evictions
		stress => 0,

		# brin_xlog_insert_update() crashes on a relation that was dropped later,
		# without images of its pages (PostgreSQL 18.6, pool or not)
		brin => $s{conf}{full_page_writes} eq 'on' ? 1 : 0,

		# replay of DROP DATABASE removes what a new database with the same OID
		# did not log (PostgreSQL 18.6, pool or not)
		drop_checkpoint => $wal_level eq 'minimal' ? 1 : 0,

		# to other tablespaces: the copy of an index's init fork is not logged, and only
		# the next checkpoint syncs it (PostgreSQL 18.6, pool or not)
		moves => 1 };
	$s{cycles} = pick(0, 0, 0, 1, 2, 4);    # crashes and recoveries before the last crash
	if ($opt{whole})
	{
		$s{kill} = pick('site', 'site', 'site', 'stop', 'save') if rand() < 0.6;
		$s{cycles} = number(1, 2) if $s{kill} =~ /stop|save/;
	}
	# not from the random numbers, whose order the seeds of old rounds rely on
	$s{fewer} = $round_seed % 3 == 0 ? 1 : 0;
	$s{conf}{'pcache.workers'} = 2 if $round_seed % 4 < 2;
	if ($round_seed % 6 == 5)
	{
		$s{load}{stress} = 1;
		$s{load}{queue} = 'on' if $s{load}{queue} eq 'only';
	}
	if ($round_seed % 5 == 1)
	{
		@{ $s{conf} }{qw(recovery_prefetch io_method)} = qw(read worker);
		$s{conf}{debug_io_direct} = 'data' if direct_io();
	}
	$s{conf}{wal_sync_method} = 'open_direct' if !$opt{whole} && $round_seed % 5 == 3 && direct_io();
	$s{kill} = 'reboot' if $round_seed % 7 == 2;
	if ($opt{whole})
	{
		$s{conf}{wal_sync_method} = pick('fdatasync', 'open_datasync', 'pmem', 'pmem', direct_io() ? ('open_direct', 'open_direct') : ());
		$s{conf}{recovery_init_sync_method} = pick('fsync', 'fsync', 'syncfs');
		$s{conf}{wal_recycle} = pick('on', 'on', 'off');
		$s{kill} = pick('stopping', 'recovery') if $s{kill} ne 'reboot' && rand() < 0.2;

		# or nothing is listed
		$s{conf}{wal_log_hints} = 'on' if $round_seed % 3;
	}

	# One round in five has mode planned_restart.  As only clean stops keep pages then, most of
	# these end with one, and there are some before.
	$s{mode} = $set{mode} // ($round_seed % 5 == 4 ? 'planned_restart' : 'always');
	if ($s{mode} eq 'planned_restart')
	{
		$s{kill} = 'stop' if $s{kill} eq 'worker' || $round_seed % 2 == 0 && $s{kill} ne 'reboot';
		$s{cycles} ||= 1 + $round_seed % 2;
	}

	# not from the random numbers either: the rest of the round goes on drawing
	$s{conf}{'pcache.recovery'} = $round_seed % 11 % 3 ? 'short' : 'full';
	$s{again} = $round_seed % 13 % 4 == 1 && $s{kill} !~ /^(?:recovery|stop|reboot)$/ && !$opt{whole} ? 1 : 0;
	return \%s;
}

# Does the file system of the rounds have direct I/O?
sub direct_io
{
	my $file = "$work/direct_io";
	my $possible = sysopen(my $fh, $file, O_CREAT | O_RDWR | O_DIRECT);

	unlink $file;
	return $possible;
}

# The plan as one line, which is what a report of a failed round begins with.
sub plan_text
{
	my ($round, $s) = @_;
	return sprintf("round %d seed %d: %s, kill %s%s after %.1f s, cycles %d, shared_buffers %s%s, checksums %d, segsize %d, scale %d, %s",
		$round, $round_seed, $s->{mode}, $s->{kill}, $s->{again} ? ' and again' : '', $s->{duration}, $s->{cycles}, $s->{shared_buffers}, $s->{fewer} ? ' and half of that' : '', $s->{checksums}, $s->{segsize}, $s->{scale},
		join(' ', (map { "$_ $s->{load}{$_}" } sort keys %{ $s->{load} }),
			map { "$_=$s->{conf}{$_}" } sort keys %{ $s->{conf} }));
}

# Note what it covers.
sub count_plan
{
	my ($s) = @_;
	$totals{"kill $s->{kill}"}++;
	$totals{"$_ $s->{$_}"}++ for qw(mode shared_buffers fewer again checksums segsize cycles);
	$totals{"$_=$s->{conf}{$_}"}++ for keys %{ $s->{conf} };
	return;
}

1;
