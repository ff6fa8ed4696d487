#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

differential.pl - the same statements and the same faults on several servers

=head1 SYNOPSIS

  differential.pl [--pg-bin DIR] --vanilla DIR --work DIR --keep DIR --seed N
    --rounds N [--steps N] [--mutant NAME]

=head1 DESCRIPTION

Started by tests/torture/differential, which see.  The clusters are copies of one:
"stock" has the unpatched server without the library, "library_planned" and "library"
have it with the library in both modes, and "patched", with --pg-bin, has the patched
server in mode always.  One session sends each of them the same statements (Workload),
and at the end of each round the same happens to all of them, often within a
transaction.  Each answer must be that of the first server, and at the end tables,
indexes and the schema must be so, too.  @MAY_DIFFER is all that is forgiven.

A session alone makes an answer depend on nothing but what was sent before:
commits are synchronous, values are drawn from keys and not by random(), and
nothing cleans up or writes a checkpoint by itself.

=cut

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use File::Path qw(make_path remove_tree);
use Getopt::Long;
use Time::HiRes qw(sleep time);

use LibraryPool;
use ServerKind;
use Torture::Log qw($TOMBSTONE);
use Walk::Ask;
use Walk::Cluster;
use Walk::Load qw(quiesce);
use Walk::Random;
use Walk::Util;
use Workload;

my %opt = ('pg-bin' => '', seed => time, rounds => 6, steps => 40, port => 54900, mutant => '');
GetOptions(\%opt, 'pg-bin=s', 'vanilla=s', 'work=s', 'keep=s', 'seed=i', 'rounds=i', 'steps=i', 'port=i', 'mutant=s')
  or die "usage: see tests/torture/differential\n";

delete $ENV{$_} for grep { /^PG/ } keys %ENV;
$ENV{LC_MESSAGES} = 'C';
$| = 1;
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

# What may differ: the statement, what of its answer does not count, and why.
my @MAY_DIFFER = (
	{
		statement => qr/^SELECT nextval/, answer => qr/\d+/,
		why => 'A sequence skips up to 32 numbers at a crash, and how many depends on the last checkpoint, which after a crash comes later in mode always.'
	},
	{
		statement => qr/^SELECT (?:\*|id) FROM/, sorted => 1,
		why => 'Rows without ORDER BY come as they lie. Free space is not in WAL, so after a crash new rows may go elsewhere.'
	},
	{
		statement => qr/brin_summarize_new_values|gin_clean_pending_list/, answer => qr/\d+/,
		why => 'These count pages, of which there may be more or fewer for the same reason.'
	});

# The servers, in this order; the first one says what is right.
my $unpatched = ServerKind->new($opt{vanilla});
my $programs = $opt{'pg-bin'} || $opt{vanilla};
my @SERVERS = ([ 'stock', 'off' ],
	[ 'library_planned', 'planned_restart', server => $unpatched, programs => $opt{vanilla} ],
	[ 'library', 'always', server => $unpatched, programs => $opt{vanilla} ],
	$opt{'pg-bin'} ? [ 'patched', 'always' ] : ());

my $work = $opt{work};
my ($failed, %totals) = (0);
my $walk = bless { dir => $work, sockets => "$work/sockets", archive => "$work/archive", bin => $programs,
	vanilla => $opt{vanilla}, server => ServerKind->new($programs), port => $opt{port}, clusters => {}, totals => \%totals, seed => $opt{seed} }, 'Walk';

sub fail
{
	my ($text) = @_;
	$failed++;
	print "    FAIL: $text\n" if $failed <= 20;
	return;
}

{

	package Walk;
	sub problem { main::fail($_[1]); return }
}

# ---------------------------------------------------------------------------
# Statements
# ---------------------------------------------------------------------------

# Single statements, each with the lines that belong to it.  COPY has its rows.  Without
# full_page_writes there is no BRIN, since redo of it may crash in PostgreSQL (Torture::Plan).
sub statements
{
	my ($seed, $fpw) = @_;
	srand $seed;
	my @lines = split /\n/, sql_stream(0, $opt{steps} * $opt{rounds}, { rows => 1000, brin => $fpw eq 'on' ? 1 : 0, databases => 0.02, checkpoints => 0.01, drop_checkpoint => 1 });
	my @out;
	while (defined(my $line = shift @lines))
	{
		if ($line =~ /^COPY/)
		{
			$line .= "\n" . shift @lines until $line =~ /^\\\.$/m;
			push @out, $line;
			next;
		}
		push @out, map { by_key(s/;?$/;/r) } $line =~ /^\\/ ? () : split /;\s*/, $line;
		push @out, $line if $line =~ /^\\/;
	}
	return @out;
}

# A statement that draws a value for each row draws it from the row's key.
sub by_key
{
	my ($sql) = @_;
	my $n = 0;
	my $key = $sql =~ /^INSERT/ ? 'g' : 'id';
	$sql =~ s/random\(\) \+ g/g/g;
	$sql =~ s/random\(\)/'(hashint4(' . $key . ' + ' . $n++ . ') & 1023) \/ 1024.0'/ge;
	return 'SET synchronous_commit = on;' if $sql =~ /^SET synchronous_commit/;
	return 'SELECT 1;' if $sql =~ /pg_sleep|^SET (?:lock_timeout|client_min)/;
	return $sql;
}

# ---------------------------------------------------------------------------
# Servers
# ---------------------------------------------------------------------------

sub launch { my ($c) = @_; return $c->spawn(bin => $c->{name} eq 'stock' ? 'stock' : 'ours'); }

# Wait until a server answers, whose postmaster was started or starts its processes again.
# If that fails, as $TOMBSTONE explains, it is started once more.  Returns what the log said
# until then, if so.
sub wait_for_answer
{
	my ($c) = @_;
	my ($begun, $first) = (time);
	while (time < $begun + 120)
	{
		my $ended = defined $c->ended;
		my $log = $c->log_since;

		# The postmaster of 18 waits for ever, if in a restart after a crash it hears
		# that the startup process has failed before it hears that redo has begun.
		if (!$ended && $log =~ $TOMBSTONE && time > $begun + 5)
		{
			$totals{'restarts that do not end'}++;
			$c->kill_all;
			$ended = 1;
		}
		if ($ended)
		{
			die "$c->{name} does not start:\n", last_lines($log) if defined $first || $log !~ $TOMBSTONE;
			$totals{'second starts'}++;
			$first = $log;
			launch($c);
			next;
		}
		return $first if ($c->connect)[0];
		sleep 0.01;
	}
	die "$c->{name} does not start in two minutes:\n", last_lines($c->log_since);
}

sub start
{
	my ($c) = @_;
	launch($c);
	return wait_for_answer($c);
}

# Copies of one cluster, so that even numbers of relations are the same.
sub make_servers
{
	my ($r) = @_;
	my %conf = (
		shared_buffers => $r->pick('buffers', '2MB', '8MB', '32MB'), full_page_writes => $r->pick('fpw', 'on', 'on', 'off'),
		wal_log_hints => $r->pick('hints', 'on', 'off'), 'pcache.worker_delay' => $r->pick('delay', '10ms', '100ms'),
		wal_level => $r->pick('level', 'replica', 'minimal'), max_wal_senders => 0, max_wal_size => '4GB', autovacuum => 'off',
		restart_after_crash => 'on', wal_sync_method => 'fdatasync');
	my $checksums = $r->chance('checksums', 0.5);
	$conf{'pcache.recovery'} = $r->pick('recovery', 'short', 'short', 'full');
	print '  ', $r->text, "\n";
	must_run("$work/out", "$opt{'vanilla'}/initdb", '-D', "$work/template", '-A', 'trust', '-U', 'postgres', '--no-sync',
		'--no-instructions', '--locale=C', '--encoding=UTF8', '--wal-segsize=1', $walk->{server}->checksums($checksums));
	for my $s (@SERVERS)
	{
		my ($name, $mode, @kind) = @$s;
		my $c = Walk::Cluster->new($walk, $name, conf => { %conf, 'pcache.mode' => $mode }, @kind);
		$walk->{clusters}{$name} = $c;
		$c->{writes} = [];
		if ($name eq 'stock')
		{
			rename("$work/template", $c->{data}) or die;
			start($c);
			spew("$work/setup.sql", "CREATE EXTENSION amcheck; CREATE EXTENSION pg_visibility;\n" . setup_sql());
			must_run("$work/out", "$walk->{bin}/psql", '-Xq', '-h', $walk->{sockets}, '-p', $c->{port}, '-U', 'postgres', '-d', 'postgres', '-v', 'ON_ERROR_STOP=1', '-f', "$work/setup.sql");
			must_run("$work/out", "$walk->{bin}/pgbench", '-iq', '-h', $walk->{sockets}, '-p', $c->{port}, '-U', 'postgres', 'postgres');
			$c->stop('fast');
			next;
		}
		copy_dir($c->{out}, $walk->{clusters}{stock}{data}, $c->{data});
		$c->make_pool;
	}
	return map { $walk->{clusters}{ $_->[0] } } @SERVERS;
}

# ---------------------------------------------------------------------------
# A round
# ---------------------------------------------------------------------------

# What happens to a server whose session has come to its end, and still is there.
my %FAULT = (
	kill => sub { $_[0]->kill_all },
	immediate => sub { $_[0]->stop('immediate') },
	stop => sub { $_[0]->stop('fast') },
	start_cut => sub {
		my ($c, $wait) = @_;
		$c->kill_all;
		launch($c);
		sleep $wait;
		$c->kill_all;
	},

	# the postmaster starts all processes again by itself
	crash => sub {
		my ($c) = @_;
		my $children = children_of($c->{pid});
		my ($pid) = grep { $children->{$_} =~ /checkpointer/ } keys %$children;
		kill 'KILL', $pid;
		wait_gone(keys %$children);
	},
	nothing => sub { });

# Send statements to all servers at the same time.  After the last one, the session
# waits for the fault.
sub run_statements
{
	my ($round, $sql, @servers) = @_;
	local %Programs::env = (PGOPTIONS => '-c client_min_messages=error -c lock_timeout=200ms');
	for my $c (@servers)
	{
		unlink "$c->{dir}/answers-$round", "$c->{dir}/there";
		my @mine = @$sql;
		$mine[ @mine / 2 ] = "UPDATE shared_t SET n = n + 1 WHERE id = 4000;\n$mine[ @mine / 2 ]" if $opt{mutant} eq $c->{name} && $round == 0;
		spew("$c->{dir}/statements-$round.sql", "\\set VERBOSITY verbose\n\\set SHOW_CONTEXT never\n"
			  . join('', map { "$_\n\\echo :::\n" } @mine) . "\\! touch $c->{dir}/there; while [ -e $c->{dir}/there ]; do sleep 0.02; done\n");
		$c->{psql} = start_to("$c->{dir}/answers-$round", "$walk->{bin}/psql", '-XAtq', '-h', $walk->{sockets}, '-p', $c->{port}, '-U', 'postgres', '-d', 'postgres', '-f', "$c->{dir}/statements-$round.sql");
	}
	for my $c (@servers)
	{
		my ($deadline, $ended) = (time + 100, 0);
		sleep 0.01 while !-e "$c->{dir}/there" && !($ended = waitpid($c->{psql}, 1)) && time < $deadline;
		next if -e "$c->{dir}/there";
		die "$c->{name}: the session does not get to its end, psql ", $ended ? 'has ended (' . ($? >> 8 || $?) . ')' : 'still runs',
		  ', the postmaster ', defined $c->ended ? "has ended ($c->{exit})" : 'runs',
		  "\n    answers:\n", last_lines(slurp("$c->{dir}/answers-$round")), "    log:\n", last_lines($c->log_since);
	}
	return;
}

# The answers of a server, by statement.
sub answers
{
	my ($c, $round, $n) = @_;

	# where an error was reported is not of interest, and depends on the version of a source file
	my $text = slurp("$c->{dir}/answers-$round") =~ s/^LOCATION:.*\n//mgr =~ s/^psql:\S*:\d+: //mgr;
	my @a = split /^:::\n/m, $text, -1;
	$#a = $n - 1;
	return map { $_ // 'no answer' } @a;
}

sub forgiven
{
	my ($sql, $answer) = @_;
	for my $d (@MAY_DIFFER)
	{
		next if $sql !~ $d->{statement};
		$answer =~ s/$d->{answer}/N/g if $d->{answer};
		$answer = join "\n", sort split /\n/, $answer if $d->{sorted};
	}
	return $answer;
}

sub compare_answers_of
{
	my ($round, $sql, $stock, @others) = @_;
	my @right = answers($stock, $round, scalar @$sql);
	for my $c (@others)
	{
		my @answers = answers($c, $round, scalar @$sql);
		for my $i (0 .. $#$sql)
		{
			$totals{answers}++;
			next if $answers[$i] eq $right[$i];
			$totals{'answers that may differ'}++;
			next if forgiven($sql->[$i], $answers[$i]) eq forgiven($sql->[$i], $right[$i]);
			fail("$c->{name}: round $round, statement $i: $sql->[$i]: " . short($answers[$i]) . ', stock: ' . short($right[$i]));
		}
	}
	return;
}

# The last lines of a text.
sub last_lines
{
	my ($text) = @_;
	my @lines = split /\n/, $text;
	return map { "      $_\n" } map { short($_) } splice @lines, @lines > 10 ? -10 : 0;
}

sub short { my ($text) = @_; chomp $text; return length $text > 200 ? substr($text, 0, 200) . '...' : $text; }

sub one_round
{
	my ($round, $sql, @servers) = @_;
	my $r = Walk::Random->new("$opt{seed}/round/$round");
	my $fault = $r->pick('fault', 'kill', 'kill', 'immediate', 'stop', 'crash', 'start_cut', 'nothing');
	my $wait = $r->fraction('wait', 0.3);
	my $t = time;
	run_statements($round, $sql, @servers);
	sleep 0.02;    # the worker
	for my $c (@servers)
	{
		$c->{log_offset} = -s $c->{log};
		$FAULT{$fault}->($c, $wait);
		unlink "$c->{dir}/there";
		waitpid($c->{psql}, 0);
	}
	compare_answers_of($round, $sql, @servers);
	my @kept;
	for my $c (@servers)
	{
		my $left = !$c->{up} && $c->{conf}{'pcache.mode'} eq 'always' ? what_is_left($c->{data}, "$c->{pool}/pool") : undef;
		fail("$c->{name}: round $round, $fault: a page that is to be kept is not what its file has: $_") for $left ? @{ $left->{wrong} } : ();
		my $first = $c->{up} ? wait_for_answer($c) : start($c);
		my ($line) = $c->outcome($first);
		my $short = shortened($first // $c->log_since);
		$totals{'starts with young pages'}++ if $short->{young};
		$totals{'records skipped'} += $short->{skipped};

		if ($left && !$c->{without})
		{
			my ($wrong) = judge_start($left, $line, short => $c->{conf}{'pcache.recovery'} eq 'short' ? $short : undef);
			fail("$c->{name}: round $round, $fault: $wrong; it was to keep $left->{kept} of $left->{found}") if defined $wrong;
		}
		push @kept, "$c->{name}: " . ($line =~ /^(kept \d+|starting cold)/ ? $1 : '-');
	}
	$totals{"fault $fault"}++;
	printf "  round %d: %d statements, then %s; %s  [%.1f s]\n", $round, scalar @$sql, $r->text, join(', ', @kept[ 1 .. $#kept ]), time - $t;
	return;
}

# ---------------------------------------------------------------------------
# The end
# ---------------------------------------------------------------------------

# Tables of users, and the schema of all databases without the version.
sub state_of
{
	my ($c) = @_;
	my $contents = contents($c);
	my %tables = map { $_ => $contents->{tables}{$_} } grep { !/\.(?:pg_(?!bench)|information_schema)/ } keys %{ $contents->{tables} };
	my $out = "$c->{dir}/schema";
	unlink $out;
	must_run($out, "$walk->{bin}/pg_dumpall", '-h', $walk->{sockets}, '-p', $c->{port}, '-U', 'postgres', '--schema-only', '--restrict-key=key');
	return (\%tables, slurp($out) =~ s/^-- Dumped .*\n//mgr);
}

# Heaps and indexes of all databases.
sub check_pages
{
	my ($c) = @_;
	fail("$c->{name}: $_") for check_indexes($c);
	my $out = "$c->{dir}/amcheck";
	unlink $out;
	my $rc = run_to($out, "$walk->{bin}/pg_amcheck", '-h', $walk->{sockets}, '-p', $c->{port}, '-U', 'postgres', '--all', '--install-missing', '--heapallindexed', '--parent-check', '--no-dependent-toast');
	fail("$c->{name}: pg_amcheck: " . short(slurp($out))) if $rc != 0;
	return;
}

sub compare_ends
{
	my (@servers) = @_;
	my ($tables, $schema);
	for my $c (@servers)
	{
		# what is prepared would keep amcheck waiting
		quiesce($c);
		my ($mine, $mine_too) = state_of($c);
		check_pages($c) if $c->{conf}{'pcache.mode'} ne 'off';
		if (!$tables) { ($tables, $schema) = ($mine, $mine_too); next }
		for my $name (sort keys %{ { %$tables, %$mine } })
		{
			$totals{tables}++;
			my ($x, $y) = map { $_->{$name} // 'does not exist' } $mine, $tables;
			fail("$c->{name}: table $name has $x, stock: $y") if $x ne $y;
		}
		fail("$c->{name}: the schema differs, see $c->{dir}/schema") if $mine_too ne $schema;
	}
	return;
}

# ---------------------------------------------------------------------------

make_path("$work/sockets", "$work/archive");
my $ok = eval {
	print "differential, seed $opt{seed}\n";
	my @servers = make_servers(Walk::Random->new("$opt{seed}/setup"));
	start($_) for @servers;
	my @sql = statements($opt{seed}, $servers[0]{conf}{full_page_writes});
	my $each = int(@sql / $opt{rounds});
	my $before = 0;
	for my $round (0 .. $opt{rounds} - 1)
	{
		my $size = $round == $opt{rounds} - 1 ? @sql : $each;
		one_round($round, [ splice @sql, 0, $size ], @servers);
		printf "  round %d %s\n", $round, $failed > $before ? 'FAILED' : 'ok';
		last if $failed > $before && !$opt{mutant};
		$before = $failed;
	}
	compare_ends(@servers);
	1;
};
fail("the test itself: $@") if !$ok;
for my $c (values %{ $walk->{clusters} }) { $c->kill_all if $c->{up} }
print '  ', join(', ', map { "$_: $totals{$_}" } sort keys %totals), "\n";
if ($failed)
{
	my $to = "$opt{keep}/differential-$opt{seed}";
	remove_tree($to);
	make_path($to);
	run_to("$work/cp.out", 'cp', '-a', '--sparse=always', $work, $to);
	print "  kept: $to\n";
}
print 'seeds: ', $failed ? 0 : 1, ' passed, ', $failed ? 1 : 0, " failed\n";
exit($failed ? 1 : 0);

END
{
	my $rc = $?;
	for my $c (values %{ $walk->{clusters} // {} }) { $c->kill_all if $c->{up} }
	$? = $rc;
}
