#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

torture.pl - kill servers at random, recover with the pool and without, compare

=head1 SYNOPSIS

  torture.pl --pg-bin DIR --rounds N --seed N --work DIR --keep DIR
    [--powercut DIR] [--pool-only] [--until-failure] [--set NAME=VALUE]...

=head1 DESCRIPTION

Started by tests/torture/run, which see.

With --powercut the power is cut at each crash: the pool that recovery finds is
the one that the shim in that directory (tests/powercut) kept apart, on media
that another boot of the host finds.  What lies in PGDATA is as it is at a
kill: the kernel is taken to survive.

With --pool-only a round ends once the pool was looked at after the crash, and
with --until-failure the first failed round is the last: for
tests/powercut/mutants.

=cut

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use Fcntl qw(:flock);
use File::Path qw(make_path remove_tree);
use Getopt::Long;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

use DeadEntries;
use IndexCheck;
use PageCompare;
use Workload;

my %opt = (rounds => 20, seed => time ^ $$, port => 54400 + $$ % 1000);
GetOptions(\%opt, 'pg-bin=s', 'rounds=i', 'seed=i', 'work=s', 'keep=s', 'first=i', 'port=i', 'set=s%', 'powercut=s', 'pool-only', 'until-failure')
  or die "usage: see tests/torture/run\n";
my $bin = $opt{'pg-bin'};
my ($work, $keep) = ($opt{work}, $opt{keep});
my %set = %{ $opt{set} // {} };

delete $ENV{$_} for grep { /^PG/ } keys %ENV;
$ENV{LC_MESSAGES} = 'C';
$ENV{PGHOST} = $work;
$ENV{PGUSER} = 'postgres';
$ENV{PGDATABASE} = 'postgres';
$| = 1;

my %totals;
my $dir;        # of this round
my $port;
my @problems;
my @children;

sub say_line { print "$_[0]\n"; return; }
sub problem { push @problems, $_[0]; say_line("    FAIL: $_[0]"); return; }

sub pick { return $_[ int rand @_ ]; }
sub number { my ($lo, $hi) = @_; return $lo + int rand($hi - $lo + 1); }

sub slurp
{
	my ($file) = @_;
	open(my $fh, '<', $file) or return '';
	local $/;
	my $s = <$fh>;
	close $fh;
	return $s // '';
}

sub spew
{
	my ($file, $text) = @_;
	open(my $fh, '>', $file) or die "$file: $!";
	print $fh $text;
	close $fh or die "$file: $!";
	return;
}

# Run a program, its output to a file; returns the exit code.
sub run_to
{
	my ($file, @cmd) = @_;
	my $pid = start_to($file, @cmd);
	waitpid($pid, 0);
	return $? >> 8 || $?;
}

my $round_seed;
my $trace;    # the shim sees each store to a descriptor
our %env;        # more environment for programs that use a pool

sub start_to
{
	my ($file, @cmd) = @_;
	my $pid = fork // die "fork: $!";
	if ($pid == 0)
	{
		%ENV = (%ENV, %env);
		setpgrp(0, 0);
		open(STDIN, '<', '/dev/null');
		open(STDOUT, '>>', $file) or POSIX::_exit(126);
		open(STDERR, '>&', \*STDOUT);
		exec(@cmd) or POSIX::_exit(127);
	}
	return $pid;
}

sub must_run
{
	my (@cmd) = @_;
	my $out = "$work/out.$$";
	unlink $out;
	my $rc = run_to($out, @cmd);
	die "@cmd failed ($rc): " . slurp($out) if $rc != 0;
	return;
}

# What to run so that the pool in a directory counts as persistent memory.
sub with_shim
{
	my ($pool, $run) = @_;
	local %env = !$opt{powercut} ? () :
	  (LD_PRELOAD => "$opt{powercut}/libpowercut.so", PMEM_IS_PMEM_FORCE => 1,
		POWERCUT_DIR => $pool, POWERCUT_IMAGE => "$pool.image", POWERCUT_SEED => $round_seed,
		$trace ? (POWERCUT_TRACE => 1) : ());
	return $run->();
}

# The power goes, and comes back: make of the pool what is found then.  No
# process uses it any more.  Returns what was stored there.
sub cut_power
{
	my ($pool) = @_;
	return if !$opt{powercut};
	my $before = -e "$pool.before" ? unlink("$pool.before") : 0;
	must_run('cp', '--sparse=always', "$pool/pool", "$pool.before");
	my $out = "$dir/powercut.out";
	unlink $out;
	run_to($out, "$opt{powercut}/powercut", "$pool/pool", "$pool.image", int rand 2**31) == 0
	  or die 'powercut: ' . slurp($out);
	chomp(my $said = slurp($out));
	say_line("    power cut: $said");
	unlink "$pool.image.ctl";
	compare_pools("$pool.before", "$pool/pool");
	unlink "$pool.before";
	return;
}

# A slot that the media call sealed holds the page that was in memory when the
# power went: nobody changes a page before its mark is durable.
sub compare_pools
{
	my ($memory, $media) = @_;
	my ($sb, $descs) = read_pool($media);
	my $bad = 0;

	# in mode planned_restart a pool in use is not believed
	return if $sb->{mode} == 1 && $sb->{state} != 4;
	check_lsns($descs);
	open(my $fh, '<:raw', $memory) or die "$memory: $!";
	for my $d (@$descs)
	{
		my $fork = (qw(main fsm vm init))[ (split m{/}, $d->{tag})[3] ] // next;
		next if $fork eq 'fsm';
		seek($fh, $sb->{blocks} + 8192 * $d->{slot}, 0);
		read($fh, my $page, 8192);
		next if $page eq $d->{page};
		my ($x, $y) = map { mask_page($_, $fork) } $d->{page}, $page;
		next if $x eq $y;
		next if !$d->{intact}->();
		my @diff = grep { substr($x, 64 * $_, 64) ne substr($y, 64 * $_, 64) } 0 .. 127;
		seek($fh, 2 * 1024 * 1024 + 64 * $d->{slot}, 0);
		read($fh, my $seq, 8);
		problem(sprintf('sealed on media, but changed: slot %d seq %d tag %s LSN %s, in memory seq %d LSN %s; lines that differ: %s',
				$d->{slot}, $d->{seq}, $d->{tag}, format_lsn($d->{page_lsn}), unpack('Q', $seq),
				format_lsn(page_lsn($page)), "@diff[0 .. ($#diff > 9 ? 9 : $#diff)]")) if $bad++ < 3;
	}
	close $fh;
	problem("sealed on media, but changed: $bad slots") if $bad > 3;
	return;
}

sub copy_dir { must_run('cp', '-a', '--reflink=auto', $_[0], $_[1]); return; }

sub psql
{
	my ($db, $sql) = @_;
	my $file = "$dir/sql.$$";
	spew($file, $sql);
	my $out = "$dir/sql-out.$$";
	unlink $out;
	my $rc = run_to($out, "$bin/psql", '-XAtq', '-p', $port, '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', $file);
	my $text = slurp($out);
	chomp $text;
	problem("psql in $db: " . join(" ", $text =~ m{^(psql:.*)}mg)) if $rc != 0;
	return $text;
}

# A cluster without a pool, made once per kind.
sub template
{
	my ($checksums, $segsize) = @_;
	my $t = "$work/template-$checksums-$segsize";
	return $t if -d $t;
	must_run("$bin/initdb", '-D', "$t.tmp", '-A', 'trust', '-U', 'postgres', '--no-sync',
		'--no-instructions', '--locale=C', '--encoding=UTF8', "--wal-segsize=$segsize",
		$checksums ? '-k' : '--no-data-checksums');
	rename("$t.tmp", $t) or die;
	return $t;
}

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
		persistent_cache_seal_delay => pick(1, 2, 5, 10, 20, 50),
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
	$s{kill} = pick('all', 'all', 'all', 'immediate', 'immediate', 'backend', 'sealer', 'checkpointer', 'checkpoint', 'recovery');
	$s{conf}{restart_after_crash} = pick('off', 'off', 'on');
	$s{load} = { checkpoints => pick(0, 0, 0.004, 0.015), databases => pick(0, 0.006, 0.02),
		rows => pick(300, 1000, 3000),

		# consumers of a queue, besides the rest of the load or without it
		queue => pick('off', 'on', 'on', 'only'),

		# brin_xlog_insert_update() crashes on a relation that was dropped later,
		# without images of its pages (PostgreSQL 18.6, pool or not)
		brin => $s{conf}{full_page_writes} eq 'on' ? 1 : 0,

		# replay of DROP DATABASE removes what a new database with the same OID
		# did not log (PostgreSQL 18.6, pool or not)
		drop_checkpoint => $wal_level eq 'minimal' ? 1 : 0 };
	$s{cycles} = pick(0, 0, 0, 1, 2);    # crashes and recoveries before the last crash
	$s{mode} = 'always';
	if ($opt{powercut})
	{
		$s{kill} = pick('site', 'site', 'site', 'stop', 'save') if rand() < 0.6;
		$s{mode} = 'planned_restart' if $s{kill} =~ /stop|save/ && rand() < 0.4;
		$s{cycles} = number(1, 2) if $s{kill} =~ /stop|save/;
		$s{kill} = 'cold' if rand() < 0.05;
		if (rand() < 0.1)
		{
			$s{kill} = 'marker';
			$s{conf}{restart_after_crash} = 'on';
		}
		$s{trace} = pick(0, 0, 1);
	}
	return \%s;
}

sub write_conf
{
	my ($data, $s) = @_;
	my %c = (
		port => $port,
		listen_addresses => "''",
		unix_socket_directories => "'$work'",
		fsync => 'off',
		shared_buffers => $s->{shared_buffers},
		persistent_cache_mode => $s->{mode},
		checkpoint_timeout => '30s',
		autovacuum_naptime => '1s',
		autovacuum_vacuum_cost_delay => 0,
		autovacuum_vacuum_threshold => 20,
		max_prepared_transactions => 40,
		max_connections => 30,
		allow_in_place_tablespaces => 'on',
		log_line_prefix => "'%m [%p] %b '",
		log_checkpoints => 'on',
		log_min_messages => 'warning',
		logging_collector => 'off',
		deadlock_timeout => '100ms',
		dynamic_shared_memory_type => 'mmap',
		timezone => "'UTC'",
		log_timezone => "'UTC'",
		track_io_timing => 'off',
		%{ $s->{conf} });
	if ($opt{powercut})
	{
		$c{shared_preload_libraries} = "'pcache_inject'";
		$c{'pcache_inject.media'} = 'clean';
		$c{'pcache_inject.dimms'} = "'dimm-a:7,dimm-b:3'";
		$c{persistent_cache_on_media_unknown} = 'cold';
	}
	open(my $fh, '>>', "$data/postgresql.conf") or die;
	print $fh "$_ = $c{$_}\n" for sort keys %c;
	close $fh;
	return;
}

sub append_conf
{
	my ($data, $line) = @_;
	open(my $fh, '>>', "$data/postgresql.conf") or die "$data/postgresql.conf: $!";
	print $fh "$line\n";
	close $fh or die;
	return;
}

# Nothing but recovery is to change data.
my @QUIET = ('autovacuum=off', 'max_logical_replication_workers=0', 'bgwriter_lru_maxpages=0',
	'log_min_messages=warning', 'checkpoint_timeout=1h', 'restart_after_crash=off');

# PostgreSQL, too: an unlogged table was created, and its transaction rolled back
# without that being durable.  Redo makes its init fork again, beside the empty main
# fork that waits for a checkpoint.
my $TOMBSTONE = qr/FATAL:  could not create file "base\/[\d\/]+": File exists/;

sub start_server
{
	my ($data, $log, @settings) = @_;
	my @o = map { ('-c', $_) } @settings;
	my $pool = { "$dir/data" => "$dir/pool", "$dir/a" => "$dir/pool-a" }->{$data};
	my $run = sub {
		return run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-l', $log, '-w', '-t', '180',
			'-o', join(' ', map { "'$_'" } @o), 'start');
	};
	return $pool ? with_shim($pool, $run) : $run->();
}

sub stop_server
{
	my ($data, $mode) = @_;
	return run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-w', '-t', '180', '-m', $mode, 'stop');
}

sub postmaster_pid
{
	my ($data) = @_;
	return slurp("$data/postmaster.pid") =~ /^(\d+)/ ? $1 : undef;
}

# All live processes of a server: pid => title.
sub server_processes
{
	my ($pm) = @_;
	my %p;
	opendir(my $dh, '/proc') or die;
	for my $pid (grep { /^\d+$/ } readdir $dh)
	{
		my $stat = slurp("/proc/$pid/stat");
		next unless $stat =~ /^\d+ \(.*\) (\S) (\d+)/s;
		next if $1 eq 'Z' || ($pid != $pm && $2 != $pm);
		my $title = slurp("/proc/$pid/cmdline");
		$title =~ tr/\0/ /;
		$p{$pid} = $title;
	}
	closedir $dh;
	return \%p;
}

sub wait_gone
{
	my ($data, $pids) = @_;
	my $deadline = time + 60;
	while (time < $deadline)
	{
		my $alive = 0;
		for my $pid (@$pids)
		{
			my $stat = slurp("/proc/$pid/stat");
			$alive++ if $stat =~ /^\d+ \(.*\) (\S)/s && $1 ne 'Z';
		}
		return 1 if !$alive;
		sleep 0.02;
	}
	die "server in $data does not go away";
}

# What a killed postmaster leaves behind; its process id may be in use again.
sub forget_pid
{
	my ($data) = @_;
	unlink "$data/postmaster.pid", "$work/.s.PGSQL.$port", "$work/.s.PGSQL.$port.lock";
	return;
}

sub kill_all
{
	my ($data) = @_;
	my $pm = postmaster_pid($data) // return 0;
	kill 'STOP', $pm;
	my $p = server_processes($pm);
	kill 'STOP', $_ for keys %$p;
	# forked before the postmaster stopped
	$p = server_processes($pm);
	kill 'KILL', $_ for keys %$p;
	wait_gone($data, [ keys %$p ]);
	forget_pid($data);
	return 1;
}

sub kill_one
{
	my ($data, $like) = @_;
	my $pm = postmaster_pid($data) // return 0;
	my $p = server_processes($pm);
	my @victims = grep { $p->{$_} =~ $like } keys %$p;
	return 0 if !@victims;
	kill 'KILL', $victims[ int rand @victims ];
	wait_gone($data, [ keys %$p ]);
	forget_pid($data);
	return 1;
}

my %VICTIM = (
	backend => qr/postgres: postgres \S+ \[local\]/,
	sealer => qr/persistent cache sealer/,
	checkpointer => qr/postgres: checkpointer/,
	marker => undef);

sub crash
{
	my ($data, $kind, $s) = @_;
	if ($kind eq 'immediate')
	{
		my $pm = postmaster_pid($data);
		my $p = server_processes($pm);
		stop_server($data, 'immediate');
		wait_gone($data, [ keys %$p ]);
		return 1;
	}
	if (exists $VICTIM{$kind} && $s->{conf}{restart_after_crash} eq 'on')
	{
		# the postmaster starts all over; work on, then kill all of it
		my $pm = postmaster_pid($data);
		my $p = server_processes($pm);
		if ($kind eq 'marker')
		{
			# seq is odd already, but not on the media; and nobody seals the slot
			# again before the power is cut
			my $size = -s "$dir/server.log";
			append_conf($data, 'persistent_cache_seal_delay = 10s');
			kill 'HUP', $pm;
			sleep 0.2;
			my $deadline = time + 5;
			say_line('    to die at ' . arm_shim("$dir/pool", 'mark', event => 5, most => 300, die => 1));
			sleep 0.01 while substr(slurp("$dir/server.log"), $size) !~ /terminated by signal 9/ && time < $deadline;
			unlink "$dir/pool.image.ctl";
		}
		my @victims = !$VICTIM{$kind} ? () : grep { $p->{$_} =~ $VICTIM{$kind} } keys %$p;
		kill 'KILL', $victims[0] if @victims;
		end_load();
		if ($kind eq 'marker' || rand() < 0.8)
		{
			my $deadline = time + 60;
			sleep 0.1;
			sleep 0.1
			  while run_to("$dir/ready.out", "$bin/pg_isready", '-q', '-p', $port) != 0 && time < $deadline;
			say_line("    restart after the crash of a $kind: " . join(' ', outcome("$dir/server.log")));
			start_load($s, "restart-" . int(time));
			sleep(rand(2) + ($kind eq 'marker' ? 1 : 0));
		}
		else
		{
			sleep rand 0.5;
		}
		return kill_all($data);
	}
	return kill_one($data, $VICTIM{$kind}) || kill_all($data) if $VICTIM{$kind};
	return cut_at_site($data, "$dir/pool") if $kind eq 'site';
	if ($kind eq 'cold')
	{
		# a cold start over a pool full of sealed pages, and a slow sealer: what
		# is in the pool must not come back to life when its slots are used
		stop_server($data, 'fast') == 0 or problem('the server does not stop');
		run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-l', "$dir/off.log", '-w',
			'-o', '-c persistent_cache_mode=off', 'start') == 0 or problem('no start without the pool');
		stop_server($data, 'fast') == 0 or problem('the server does not stop');
		end_load();
		append_conf($data, 'persistent_cache_seal_delay = 1s');
		start_server($data, "$dir/server.log") == 0 or problem('no start with an outdated pool');
		my ($line) = outcome("$dir/server.log");
		problem("not cold after a run without the pool: $line") if $line !~ /starting cold/;
		start_load($s, 'cold');
		sleep rand 3;
		return kill_all($data);
	}
	if ($kind eq 'save')
	{
		# while a clean stop saves the cache
		my $pm = postmaster_pid($data);
		my $p = server_processes($pm);
		my $site = $set{site} // ($s->{mode} eq 'always' ? pick($trace ? 'store' : 'seal', 'seal', 'superblock') : 'superblock');
		$site = arm_shim("$dir/pool", $site,
			$site eq 'superblock' ? (event => number(1, 3), most => 2) :
			$site eq 'seal' ? (event => 1, most => 3000) : (most => 12000));
		stop_server($data, 'fast');
		wait_gone($data, [ keys %$p ]);
		forget_pid($data) if postmaster_pid($data);
		say_line("    $site: " . (slurp("$dir/server.log") =~ /database system is shut down\n\z/ ? 'did not come to it' : 'cut'));
		return 1;
	}
	if ($kind eq 'stop')
	{
		# to the end, but the power goes before anything else reaches the media
		my $pm = postmaster_pid($data);
		my $p = server_processes($pm);
		stop_server($data, 'fast') == 0 or problem('the server does not stop');
		wait_gone($data, [ keys %$p ]);
		return 1;
	}
	if ($kind eq 'checkpoint')
	{
		# in a checkpoint, or soon after: CREATE DATABASE and others ask for them
		my $size = -s "$dir/server.log";
		my $deadline = time + 3;
		while (time < $deadline)
		{
			last if substr(slurp("$dir/server.log"), $size) =~ /checkpoint starting/;
			sleep 0.002;
		}
		sleep rand pick(0.005, 0.02, 0.1);
	}
	return kill_all($data);
}

# Where the shim is to cut the power, as in tests/powercut/powercut.h: what is
# stored there, how often until the cut at most, and at which step.
my %SITES = (
	superblock => [ 1, 8, 40, 1 .. 4 ],
	watermark => [ 2, 100, 1000, 1 .. 4 ],
	mark => [ 4, 500, 2000, 1 .. 4 ],
	seal => [ 8, 200, 2000, 1 .. 4 ],
	page => [ 16, 200, 20000, 1 .. 4 ]);

# Only if the shim sees each store.
my %STORE_SITE = (store => [ 8, 3000, 3000, 6 ]);

sub random_site
{
	return pick(sort(keys %SITES, $trace ? keys %STORE_SITE : ()));
}

sub arm_shim
{
	my ($pool, $site, %how) = @_;
	my ($kinds, $drains, $flushes, @events) = @{ $SITES{$site} // $STORE_SITE{$site} };
	my $event = $how{event} // pick(@events);
	my $n = number(1, $how{most} // ($event == 1 ? $flushes : $drains));
	my $ctl = "$pool.image.ctl";
	spew($ctl, "\0" x 128) if !-e $ctl;
	open(my $fh, '+<:raw', $ctl) or die "$ctl: $!";
	sysseek($fh, 4, 0);
	syswrite($fh, pack('LL', $kinds, $event));
	sysseek($fh, 16, 0);
	syswrite($fh, pack('qL', $n, $how{die} // 0));
	sysseek($fh, 0, 0);
	syswrite($fh, pack('L', 1));
	close $fh;
	return sprintf('%s of %s %d', (qw(- flush drain half-drain drained call after))[$event], $site, $n);
}

sub cut_at_site
{
	my ($data, $pool) = @_;
	my $pm = postmaster_pid($data) // return 0;
	my $p = server_processes($pm);
	my $site = arm_shim($pool, $set{site} // random_site());
	my $deadline = time + 8;
	sleep 0.01 while -e "/proc/$pm/stat" && slurp("/proc/$pm/stat") !~ /\) [TZ] / && time < $deadline;
	if (time < $deadline)
	{
		wait_gone($data, [ $pm, keys %$p ]);
		forget_pid($data);
		say_line("    cut at $site");
		$totals{"site " . ($site =~ /of (\w+)/)[0]}++;
		return 1;
	}
	say_line("    it did not come to the cut at $site");
	return kill_all($data);
}

sub start_queue
{
	my ($s, $cycle) = @_;
	my %scripts = queue_scripts();
	my @files;

	for my $name (sort keys %scripts)
	{
		my ($weight, $text) = @{ $scripts{$name} };
		spew("$dir/queue-$name.sql", $text);
		push @files, '-f', "$dir/queue-$name.sql\@$weight" if $weight;
	}
	# by index scans, since bitmap scans mark nothing as dead
	local $ENV{PGOPTIONS} = '-c enable_seqscan=off -c enable_bitmapscan=off';
	my @pgbench = ("$bin/pgbench", '-n', '-T', 600, '-p', $port, '--max-tries=10', '-M', 'prepared');
	push @children, start_to("$dir/queue.out", @pgbench, '-c', 4, '-R', 2000, @files),
	  start_to("$dir/queue.out", @pgbench, '-c', 1, '-f', "$dir/queue-put.sql");
	return;
}

# Start psql and pgbench sessions.
sub start_load
{
	my ($s, $cycle) = @_;
	@children = ();
	start_queue($s, $cycle) if $s->{load}{queue} ne 'off';
	return if $s->{load}{queue} eq 'only';
	for my $client (0 .. 3)
	{
		my $file = "$dir/client-$cycle-$client.sql";
		spew($file, sql_stream($client, 2500, $s->{load}));
		push @children, start_to("$dir/clients.out", "$bin/psql", '-XAtq', '-p', $port, '-o', '/dev/null', '-f', $file);
	}
	push @children, start_to("$dir/pgbench.out", "$bin/pgbench", '-n', '-c', 2, '-T', 600,
		'-p', $port, '--max-tries=10', '-M', pick('simple', 'prepared'));
	return;
}

sub end_load
{
	for my $pid (@children)
	{
		kill 'KILL', -$pid;
		waitpid($pid, 0);
	}
	@children = ();
	return;
}

sub outcome
{
	my ($log) = @_;
	my $text = slurp($log);
	my @lines = $text =~ /persistent cache: ((?:kept|starting cold)[^\n]*)/g;
	my @detail = $text =~ /(Dropped: [^\n]*)/g;
	return (@lines ? $lines[-1] : '', @detail ? $detail[-1] : '');
}

sub redo_seconds
{
	my ($log) = @_;
	return slurp($log) =~ /redo done at .* elapsed: ([0-9.]+) s/ ? $1 : 0;
}

my $BAD = qr/PANIC|TRAP:|invalid page|unexpected data beyond EOF|xlog flush request|references to invalid pages|page verification failed|could not read block|incorrect resource manager|FATAL:\s++(?!the database system|terminating|sorry|connection to client lost|database .* does not exist|cannot connect to invalid database)|persistent cache.*(?:WARNING|violat)|WARNING: .*persistent cache|visibility map bit is set|incorrectly|corrupt|duplicate key.*pg_|could not access status|tuple concurrently|segfault|was terminated by signal (?!9)/;

sub check_log
{
	my ($log, $who) = @_;
	my %seen;
	open(my $fh, '<', $log) or return;
	while (my $line = <$fh>)
	{
		next unless $line =~ $BAD;
		next if $line =~ /tuple concurrently (?:updated|deleted)|possibly corrupted shared memory|This probably means that some data is corrupted/;
		chomp $line;
		(my $key = $line) =~ s/\d+/N/g;
		problem("$who log: $line") unless $seen{$key}++;
	}
	close $fh;
	return;
}

my @CRC32C = map {
	my $c = $_;
	$c = $c & 1 ? ($c >> 1) ^ 0x82F63B78 : $c >> 1 for 1 .. 8;
	$c;
} 0 .. 255;

sub crc32c
{
	my $c = 0xFFFFFFFF;
	$c = $CRC32C[ ($c ^ $_) & 0xFF ] ^ ($c >> 8) for unpack('C*', $_[0]);
	return $c ^ 0xFFFFFFFF;
}

# The superblock and the sealed descriptors of a pool, with their pages.
sub read_pool
{
	my ($pool) = @_;
	open(my $fh, '<:raw', $pool) or die "$pool: $!";
	read($fh, my $sb, 4096);
	if (unpack('L', substr($sb, 4084, 4)) != crc32c(substr($sb, 0, 4084)))
	{
		read($fh, $sb, 4096);
		say_line('    the first superblock is damaged');
	}
	my ($capacity, undef, $blocks) = unpack('x88 QQQ', $sb);
	my ($slots, $state) = unpack('x112 QL', $sb);
	seek($fh, 2 * 1024 * 1024, 0);
	read($fh, my $all, 64 * $slots);
	my @d;
	for my $i (0 .. $slots - 1)
	{
		my ($seq, $lsn, $epoch, $spc, $db, $rel, $fork, $block, $slot, $version, $flags, $usage) =
		  unpack('QQQLLLlLLSSC', substr($all, 64 * $i, 40 + 24));
		next if $seq & 1 || $version != 1 || $slot != $i;
		my $line = substr($all, 64 * $i, 64);
		seek($fh, $blocks + 8192 * $i, 0);
		read($fh, my $page, 8192);
		push @d,
		  { intact => sub { unpack('L', substr($line, 60)) == crc32c(substr($line, 8, 52)) },
			slot => $i, seq => $seq, lsn => $lsn, epoch => $epoch, flags => $flags, usage => $usage,
			tag => "$spc/$db/$rel/$fork/$block", page_lsn => page_lsn($page), page => $page };
	}
	close $fh;
	my ($pe, $ce) = unpack('QQ', substr($sb, 1800, 16));
	my %sb = (state => $state, mode => unpack('L', substr($sb, 124, 4)), blocks => $blocks, slots => $slots, epoch => unpack('Q', substr($sb, 144, 8)),
		pending_epoch => $pe, confirmed_epoch => $ce,
		pending => page_lsn_swapped(substr($sb, 160, 16)), confirmed => page_lsn_swapped(substr($sb, 184, 16)));
	open($fh, '<:raw', $pool) or die;
	seek($fh, 8192, 0);
	read($fh, my $wm, 64);
	close $fh;
	my @w = map { my ($f, $w) = unpack('QQ', substr($wm, 32 * $_, 16)); format_lsn($f) . ' witness ' . format_lsn($w) } 0, 1;
	$sb{watermarks} = join(', ', @w);
	return (\%sb, \@d);
}

sub check_lsns
{
	my ($descs) = @_;
	my @odd = grep { $_->{lsn} != $_->{page_lsn} } @$descs;
	problem(sprintf('%d sealed pages have another LSN than their descriptors, first: slot %d tag %s descriptor %s page %s',
			scalar @odd, $odd[0]{slot}, $odd[0]{tag}, format_lsn($odd[0]{lsn}), format_lsn($odd[0]{page_lsn}))) if @odd;
	return;
}

sub page_lsn_swapped
{
	my ($loc, $redo) = unpack('QQ', $_[0]);
	return format_lsn($loc) . ' redo ' . format_lsn($redo);
}

# Path below PGDATA of a relation file => spc/db/rel, fork number
sub tag_of
{
	my ($path) = @_;
	my %forks = (main => 0, fsm => 1, vm => 2, init => 3);
	$path =~ m{^(?:global|base/(\d+)|pg_tblspc/(\d+)/[^/]+/(\d+))/(\d+)(?:_(\w+))?(?:\.\d+)?$} or return '';
	my ($spc, $db) = defined $1 ? (1663, $1) : defined $2 ? ($2, $3) : (1664, 0);
	return "$spc/$db/$4/" . $forks{ $5 // 'main' };
}

my $TABLES_SQL = <<'SQL';
SELECT format('SELECT %L, count(*), coalesce(sum(hashtext(t::text)::bigint), 0) FROM %s t',
              c.oid::regclass, c.oid::regclass)
  FROM pg_class c
 WHERE relkind IN ('r', 'm') AND relpersistence <> 't'
   AND relname NOT IN ('pg_statistic', 'pg_stat_statements')
 ORDER BY c.oid \gexec
SQL

sub databases
{
	my $all = psql('postgres', "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1");
	return split /\n/, $all;
}

sub rollback_prepared
{
	my $sql = psql('postgres', "SELECT format('ROLLBACK PREPARED %L;', gid) || E'\\n' FROM pg_prepared_xacts ORDER BY gid");
	psql('postgres', $sql) if $sql;
	return;
}

sub contents
{
	my %c;
	for my $db (databases())
	{
		$c{$db} = psql($db, $TABLES_SQL);
	}
	return \%c;
}

sub relations
{
	my %known;
	for my $db (databases(), 'template0')
	{
		next if $db eq 'template0';
		my $out = psql($db,
			"SELECT pg_relation_filepath(oid) || ' ' || relname || ' ' || relkind::text || ' ' || relpersistence::text || ' ' || coalesce(pg_relation_filepath(indrelid), '') FROM pg_class LEFT JOIN pg_index ON indexrelid = oid WHERE pg_relation_filepath(oid) IS NOT NULL");
		for (split /\n/, $out)
		{
			my ($path, $name, $kind, $persistence, $heap) = split / /;
			$known{$path} = { name => "$db.$name", kind => $kind, persistence => $persistence, heap => $heap };
		}
	}
	return \%known;
}

sub compare_contents
{
	my ($x, $y, $what) = @_;
	for my $db (sort keys %{ { %$x, %$y } })
	{
		my ($a, $b) = ($x->{$db} // 'no such database', $y->{$db} // 'no such database');
		next if $a eq $b;
		my %a = map { $_ => 1 } split /\n/, $a;
		my %b = map { $_ => 1 } split /\n/, $b;
		my @only_a = grep { !$b{$_} } sort keys %a;
		my @only_b = grep { !$a{$_} } sort keys %b;
		problem("$what: contents differ in $db: @only_a[0 .. ($#only_a > 3 ? 3 : $#only_a)] against @only_b[0 .. ($#only_b > 3 ? 3 : $#only_b)]");
	}
	return;
}

sub check_sums
{
	my ($who) = @_;
	my $r = psql('postgres',
		"SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers) AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches) AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)");
	problem("$who: TPC-B sums do not agree") if $r ne 't';
	return;
}

sub amcheck
{
	my ($who) = @_;
	psql($_, 'CREATE EXTENSION IF NOT EXISTS amcheck; CREATE EXTENSION IF NOT EXISTS pg_visibility') for databases();
	for my $db (databases())
	{
		my $r = psql($db, "SELECT c.oid::regclass, 'visible', v::text FROM pg_class c, pg_check_visible(c.oid) v WHERE relkind IN ('r', 't', 'm') AND relpersistence = 'p' UNION ALL SELECT c.oid::regclass, 'frozen', v::text FROM pg_class c, pg_check_frozen(c.oid) v WHERE relkind IN ('r', 't', 'm') AND relpersistence = 'p' LIMIT 5");
		problem("$who: visibility map of $db: $r") if $r;
	}
	my $out = "$dir/amcheck-$who.out";
	my $rc = run_to($out, "$bin/pg_amcheck", '-p', $port, '--all', '--heapallindexed', '--parent-check', '--checkunique', '--no-dependent-toast', '-j', 2);
	problem("$who: pg_amcheck: " . substr(slurp($out), 0, 1500)) if $rc != 0;

	# the index methods that pg_amcheck does not know
	for my $db (databases())
	{
		my $gin = psql($db, "SELECT count(gin_index_check(c.oid)) FROM pg_class c JOIN pg_am a ON a.oid = relam JOIN pg_index i ON indexrelid = c.oid WHERE amname = 'gin' AND relkind = 'i' AND indisvalid AND relpersistence = 'p'");
	}
	return;
}

# Does each index find what a sequential scan finds?
sub check_indexes
{
	my ($who) = @_;
	my $checked = 0;
	for my $db (databases())
	{
		my $r = index_check(\&psql, $db, writable => 1);
		problem("$who: $_") for @{ $r->{problems} };
		$checked += $r->{checked};
		$totals{'indexes not asked'} += @{ $r->{unforced} };
	}
	problem("$who: no index was asked") if !$checked;
	$totals{'indexes asked'} += $checked;
	return;
}

# Index entries that are marked as dead in A and not in B: { path, block, tids }.
# Their rows must be dead in B.
sub check_dead_entries
{
	my ($dead, $b, $known) = @_;
	my ($entries, $lost) = (0, 0);
	for my $d (@$dead)
	{
		(my $base = $d->{path}) =~ s/\.\d+$//;
		my $k = $known->{$base};
		next if !$k || $k->{persistence} ne 'p';
		for my $tid (@{ $d->{tids} })
		{
			$entries++;
			my $state = row_lives($b, $k->{heap}, @$tid) // next;
			problem("an index entry is marked as dead whose row is not: $k->{name} block $d->{block}, row $state") if $lost++ < 3;
		}
	}
	problem("index entries marked as dead whose rows are not: $lost") if $lost > 3;
	$totals{'entries dead only in A'} += $entries;
	return $entries;
}

sub explain_page
{
	my ($d, $crash_data, $sb, $descs, $known) = @_;
	my $tag = tag_of($d->{path}) . "/$d->{block}";
	(my $base = $d->{path}) =~ s/(?:_\w+)?(?:\.\d+)?$//;
	my $k = $known->{$base};
	my $s = sprintf("%s block %d (%s): %s", $d->{path}, $d->{block},
		$k ? "$k->{name} $k->{kind} $k->{persistence}" : 'ORPHAN', $d->{why});
	if (defined $d->{a})
	{
		my $file = "$crash_data/$d->{path}";
		my $disk = read_page($file, $d->{block} % 131072);
		$s .= sprintf("\n      LSN A %s B %s, on disk at the crash %s",
			format_lsn(page_lsn($d->{a})), format_lsn(page_lsn($d->{b})),
			defined $disk ? format_lsn(page_lsn($disk)) : 'none');
		my $ma = mask_page($d->{a}, $d->{fork});
		my $mb = mask_page($d->{b}, $d->{fork});
		my @diff = grep { substr($ma, $_, 1) ne substr($mb, $_, 1) } 0 .. 8191;
		$s .= sprintf("\n      %d bytes differ, first at %d", scalar @diff, $diff[0]) if @diff;
	}
	my @found = grep { $_->{tag} eq $tag } @$descs;
	for my $f (@found)
	{
		$s .= sprintf("\n      pool at the crash: slot %d seq %d epoch %d lsn %s page lsn %s flags %d usage %d; same as A: %s, as B: %s",
			$f->{slot}, $f->{seq}, $f->{epoch}, format_lsn($f->{lsn}), format_lsn($f->{page_lsn}), $f->{flags}, $f->{usage},
			(defined $d->{a} && mask_page($f->{page}, $d->{fork}) eq mask_page($d->{a}, $d->{fork}) ? 'yes' : 'no'),
			(defined $d->{b} && mask_page($f->{page}, $d->{fork}) eq mask_page($d->{b}, $d->{fork}) ? 'yes' : 'no'));
	}
	$s .= "\n      pool at the crash: not sealed" if !@found;
	return $s;
}

# After a clean stop each sealed page must equal its file.
sub check_pool_against_files
{
	my ($data, $pool, $who) = @_;
	my ($sb, $descs) = read_pool($pool);
	my $bad = 0;
	my %paths;
	for my $path (keys %{ relation_files($data) })
	{
		$paths{ tag_of($path) } = $path if $path !~ /\.\d+$/;
	}
	my %fh;
	for my $d (@$descs)
	{
		my ($rel, $fork, $block) = $d->{tag} =~ m{^(.*)/(\d+)/(\d+)$};
		next if $fork == 1;
		my $path = $paths{"$rel/$fork"} // next;
		my $disk = read_page("$data/$path", $block) // next;
		my ($x, $y) = ($d->{page}, $disk);
		substr($_, 8, 2) = "\0\0" for $x, $y;
		next if $x eq $y;
		my $name = (qw(main fsm vm init))[$fork];
		next if mask_page($x, $name) eq mask_page($y, $name);

		# vm_readbuf() initializes a page of zeros without making it dirty
		# so do GIN, SP-GiST and BRIN with new pages that they then do not use
		if ($y !~ /[^\0]/ && $d->{page_lsn} == 0)
		{
			my ($lower, $special) = unpack('x12 S x2 S', $x);
			next if $lower == 24 && substr($x, 24, $special - 24) !~ /[^\0]/;
		}
		problem(sprintf("\n      pool %s\n      file %s\n", unpack('H112', $x), unpack('H112', $y)) . sprintf('%s: kept page %s (%s) differs from its file: LSN in pool %s, in file %s; slot %d seq %d epoch %d flags %d', $who, $d->{tag}, $path,
				format_lsn($d->{page_lsn}), format_lsn(page_lsn($disk)), $d->{slot}, $d->{seq}, $d->{epoch}, $d->{flags})) if $bad++ < 3;
	}
	problem("$who: $bad kept pages differ from their files") if $bad > 3;
	return;
}

sub one_round
{
	my ($round) = @_;
	my $seed = $round_seed = $opt{seed} + $round;
	srand($seed);
	$dir = "$work/r$round";
	$port = $opt{port};
	@problems = ();
	remove_tree($dir);
	make_path($dir);

	my $s = random_settings();
	for my $k (grep { $_ ne 'site' } keys %set)
	{
		if (exists $s->{load}{$k}) { $s->{load}{$k} = $set{$k} }
		elsif (exists $s->{$k}) { $s->{$k} = $set{$k} }
		else { $s->{conf}{$k} = $set{$k} }
	}
	$s->{load}{brin} = 0 if $s->{conf}{full_page_writes} eq 'off';
	$s->{load}{drop_checkpoint} = 1 if $s->{conf}{wal_level} eq 'minimal';
	$s->{cycles}++ if $s->{kill} eq 'recovery' && $s->{cycles} == 0;
	$trace = $s->{trace} || ($set{site} // '') eq 'store';
	$s->{mode} = 'always' if $s->{kill} !~ /^(?:stop|save)$/ && !$set{mode};
	say_line(sprintf("round %d seed %d: %s%s, kill %s after %.1f s, cycles %d, shared_buffers %s, checksums %d, segsize %d, scale %d, %s",
			$round, $seed, $s->{mode}, $trace ? ', stores traced' : '', $s->{kill}, $s->{duration}, $s->{cycles}, $s->{shared_buffers}, $s->{checksums}, $s->{segsize}, $s->{scale},
			join(' ', (map { "$_ $s->{load}{$_}" } sort keys %{ $s->{load} }),
				map { "$_=$s->{conf}{$_}" } sort keys %{ $s->{conf} })));
	$totals{"kill $s->{kill}"}++;
	$totals{"$_ $s->{$_}"}++ for qw(mode shared_buffers checksums segsize cycles);
	$totals{"$_=$s->{conf}{$_}"}++ for keys %{ $s->{conf} };

	my $data = "$dir/data";
	copy_dir(template($s->{checksums}, $s->{segsize}), $data);
	write_conf($data, $s);
	make_path("$dir/pool", { mode => 0700 }) if $opt{powercut};
	with_shim("$dir/pool", sub { must_run("$bin/pg_pcache", 'init', '-D', $data, "--directory=$dir/pool") });
	my $log = "$dir/server.log";
	start_server($data, $log) == 0 or die "first start failed: " . slurp($log);
	spew("$dir/setup.sql", setup_sql());
	run_to("$dir/setup.out", "$bin/psql", '-Xq', '-p', $port, '-f', "$dir/setup.sql");
	run_to("$dir/pgbench-init.out", "$bin/pgbench", '-i', '-q', '-s', $s->{scale}, '-I', pick('dtGvp', 'dtgvp', 'dtgpf'), '-p', $port);

	# crashes, each followed by a recovery in place
	my $kind;
	for my $cycle (1 .. $s->{cycles})
	{
		start_load($s, $cycle);
		sleep($s->{duration} / 2);
		$kind = $s->{kill} eq 'recovery' ? 'all' : pick('all', 'immediate', 'backend', 'sealer');
		$kind = pick('site', $kind) if $opt{powercut};
		$kind = 'stop' if $s->{mode} eq 'planned_restart';
		crash($data, $kind, $s);
		end_load();
		cut_power("$dir/pool");
		if ($s->{kill} eq 'recovery' && $cycle == $s->{cycles})
		{
			# crash again while recovery runs, or soon after
			my $wait = pick(rand 0.3, rand 1.0, rand 2.5);
			say_line('    armed: ' . arm_shim("$dir/pool", random_site(), most => 300)) if $opt{powercut} && rand() < 0.5;
			my $pid = with_shim("$dir/pool",
				sub { start_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-l', $log, '-w', 'start') });
			my $deadline = time + 20;
			sleep 0.005 while !postmaster_pid($data) && time < $deadline;
			sleep $wait;
			my $pm = postmaster_pid($data) // 0;
			my $p = $pm && -e "/proc/$pm" ? server_processes($pm) : {};
			my ($startup) = grep { $p->{$_} =~ /postgres: startup/ } keys %$p;
			if ($startup && rand() < 0.5)
			{
				$kind = sprintf('startup process %.2f s into recovery', $wait);
				kill 'KILL', $startup;
				wait_gone($data, [ keys %$p ]);
				forget_pid($data);
			}
			else
			{
				$kind = sprintf('all %.2f s after the start of recovery%s', $wait, $startup ? ', during it' : '');
				%$p ? kill_all($data) : forget_pid($data);
			}
			waitpid($pid, 0);
			say_line("    cycle $cycle: killed all, then $kind");
		}
		else
		{
			if (start_server($data, $log) != 0)
			{
				problem("recovery after crash $cycle ($kind) failed");
				last;
			}
			say_line("    cycle $cycle: killed $kind, " . join(' ', outcome($log)));
			rollback_prepared() if rand() < 0.7;
		}
	}
	if (!@problems && $s->{kill} ne 'recovery')
	{
		start_load($s, 0);
		sleep($s->{duration});
		crash($data, $s->{kill}, $s);
		end_load();
	}
	check_log($log, 'server');
	cut_power("$dir/pool");
	return !@problems if $opt{'pool-only'};

	# the crash: copies
	my ($sb, $descs) = read_pool("$dir/pool/pool");
	check_lsns($descs) if $s->{mode} eq 'always';
	my %tags;
	$tags{ $_->{tag} }++ for @$descs;
	my @twice = grep { $tags{$_} > 1 } keys %tags;
	problem("sealed twice: @twice") if @twice;

	my ($a, $b) = ("$dir/a", "$dir/b");
	copy_dir($data, $a);
	copy_dir("$dir/pool", "$dir/pool-a");
	copy_dir("$dir/$_", "$dir/" . s/^pool/pool-a/r) for $opt{powercut} ? qw(pool.image pool.image.boot) : ();
	unlink "$a/pg_pcache";
	symlink("$dir/pool-a", "$a/pg_pcache") or die;
	copy_dir($data, $b);
	unlink "$b/pg_pcache";
	unlink "$_/postmaster.pid" for $a, $b;

	# recover both
	my ($ok_a, $ok_b);
	$ok_a = start_server($a, "$dir/a.log", @QUIET) == 0;
	stop_server($a, 'fast') == 0 or problem('A does not stop') if $ok_a;
	$ok_b = start_server($b, "$dir/b.log", @QUIET, 'persistent_cache_mode=off') == 0;
	if (!$ok_a && !$ok_b && 2 == grep { slurp("$dir/$_.log") =~ $TOMBSTONE } qw(a b))
	{
		say_line('    neither starts at first: an unlogged table was being created');
		$totals{'neither starts at first'}++;
		return !@problems;
	}
	problem('recovery with the pool failed: ' . substr(slurp("$dir/a.log"), -1500)) if !$ok_a;
	problem('recovery without the pool failed: ' . substr(slurp("$dir/b.log"), -1500)) if !$ok_b;
	stop_server($b, 'fast') == 0 or problem('B does not stop') if $ok_b;
	check_log("$dir/a.log", 'A');
	check_log("$dir/b.log", 'B');
	my ($line, $dropped) = outcome("$dir/a.log");
	say_line(sprintf('    sealed %d; A: %s %s', scalar @$descs, $line, $dropped));
	say_line(sprintf('    redo: A %s s, B %s s', redo_seconds("$dir/a.log"), redo_seconds("$dir/b.log")));
	my $cold = $line !~ /^kept [1-9]/;
	if ($cold)
	{
		if ($s->{mode} eq 'planned_restart' && $s->{kill} eq 'save' && $line =~ /was not shut down cleanly/) { $totals{'cold: save cut short'}++ }
		elsif ($s->{kill} eq 'cold' && $line =~ /had not sealed any page/) { $totals{'cold: nothing sealed yet'}++ }
		elsif ($line =~ /did not reach a consistent state/ && ($s->{kill} eq 'recovery' || $s->{conf}{restart_after_crash} eq 'on')) { $totals{'cold: attaching'}++ }
		else { problem("A is cold: $line") }
	}
	else { $totals{'warm'}++ }
	$totals{'kept pages'} += $1 if $line =~ /^kept (\d+)/;

	my ($result, $known);
	if ($ok_a && $ok_b)
	{
		my @dead;
		$result = compare_data_dirs($a, $b, undef, sub {
			my ($path, $block, $fork, @pages) = @_;
			my @tids = $fork eq 'main' ? dead_only_in_first(@pages) : ();
			push @dead, { path => $path, block => $block, tids => \@tids } if @tids;
		});

		# A from its pool, B from its files
		if (start_server($b, "$dir/b.log", @QUIET, 'persistent_cache_mode=off') != 0) { problem('B does not start again') }
		rollback_prepared();
		my $cb = contents();
		$known = relations();
		stop_server($b, 'fast');
		my $dead = check_dead_entries(\@dead, $b, $known);
		say_line("    index entries that are dead in A only: $dead") if $dead;

		cut_power("$dir/pool-a");
		check_pool_against_files($a, "$dir/pool-a/pool", 'A');
		unlink "$dir/a2.log";
		if (start_server($a, "$dir/a2.log", @QUIET) != 0) { problem('A does not start again') }
		my ($again) = outcome("$dir/a2.log");
		problem("A is not warm after a clean stop: $again") if $again !~ ($cold ? qr/^kept \d/ : qr/^kept [1-9]/);
		rollback_prepared();
		compare_contents(contents(), $cb, 'A after a clean stop, and B');
		check_sums('A');
		check_indexes('A');
		amcheck('A');

		# go on working, stop, start
		start_load($s, 99);
		sleep 1;
		end_load();
		rollback_prepared();
		stop_server($a, 'fast') == 0 or problem('A does not stop');
		check_pool_against_files($a, "$dir/pool-a/pool", 'A, second stop');
		if (start_server($a, "$dir/a2.log", @QUIET) != 0) { problem('A does not start a third time') }
		($again) = outcome("$dir/a2.log");
		problem("A is not warm after the second clean stop: $again") if $again !~ /^kept [1-9]/;
		check_sums('A at the end');
		check_indexes('A at the end');
		stop_server($a, 'fast');
		check_log("$dir/a2.log", 'A later');

		my ($hard, $orphans, $lsn) = (0, 0, 0);
		my @report;
		for my $d (@{ $result->{hard} }, @{ $result->{lsn} })
		{
			(my $base = $d->{path}) =~ s/(?:_\w+)?(?:\.\d+)?$//;
			my $k = $known->{$base};
			if (!$k && $base !~ m{^base/(?:4|1)/}) { $orphans++; next }
			next if $k && $k->{persistence} eq 'u' && ($d->{fork} // '') ne 'init';

			# FPI_FOR_HINT without an image (full_page_writes = off) sets the
			# page LSN when it is written, but not when it is replayed
			if ($d->{why} =~ /LSN newer in A/ && $s->{conf}{full_page_writes} eq 'off'
				&& ($s->{checksums} || $s->{conf}{wal_log_hints} eq 'on'))
			{
				next;
			}

			# CREATE DATABASE with STRATEGY wal_log logs visibility maps as
			# standard pages, that is, without their contents
			# (RelationCopyStorageUsingBuffer); who has the page has the bits
			if (($d->{fork} // '') eq 'vm' && $base =~ m{/9[01]\d\d\d/} && $d->{why} =~ / 0 only in B|LSN newer in A/)
			{
				$result->{soft}{'visibility map kept in a copied database'}++;
				next;
			}
			$d->{why} =~ /LSN newer/ ? $lsn++ : $hard++;
			push @report, explain_page($d, $data, $sb, $descs, $known) if @report < 40;
		}
		if ($hard || $lsn)
		{
			spew("$dir/report", join("\n", @report) . "\n");
			problem("$hard pages differ, $lsn more only in their LSN:\n      $_") for join("\n      ", @report[ 0 .. ($#report > 3 ? 3 : $#report) ]);
		}
		say_line(sprintf('    compared %d files, %d pages: %d bytewise unequal, %d differ, %d differ in LSN, %d in orphans; %s',
				$result->{files}, $result->{pages}, $result->{unequal}, $hard, $lsn, $orphans,
				join(', ', map { "$_: $result->{soft}{$_}" } sort keys %{ $result->{soft} })));
	}
	say_line("    superblock: " . join(', ', map { "$_ $sb->{$_}" } sort keys %$sb)) if @problems;
	return !@problems;
}

my ($passed, $failed) = (0, 0);
my @failed;
make_path($work, $keep);
my $first = $opt{first} // 0;
for my $round ($first .. $first + $opt{rounds} - 1)
{
	my $t = time;
	my $ok = eval { one_round($round) };
	if ($@)
	{
		problem("the test itself: $@");
		$ok = 0;
	}
	end_load();
	for my $d (qw(data a b))
	{
		eval { kill_all("$dir/$d") } if -e "$dir/$d/postmaster.pid";
	}
	if ($ok)
	{
		$passed++;
		remove_tree($dir);
	}
	else
	{
		$failed++;
		push @failed, $opt{seed} + $round;
		my $to = "$keep/torture-" . ($opt{seed} + $round);
		remove_tree($to);
		copy_dir($dir, $to);
		remove_tree($dir);
		say_line("    kept: $to");
	}
	say_line(sprintf("    %s, %.0f s", $ok ? 'ok' : 'FAILED', time - $t));
	last if !$ok && $opt{'until-failure'};
}
say_line('coverage: ' . join(', ', map { "$_: $totals{$_}" } sort keys %totals));
say_line("failed seeds: @failed") if @failed;
say_line("rounds: $passed passed, $failed failed");
exit($failed ? 1 : 0);
