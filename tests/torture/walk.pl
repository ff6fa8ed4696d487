#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

walk.pl - random walks over what may happen to clusters with a persistent cache

=head1 SYNOPSIS

  walk.pl --pg-bin DIR --vanilla DIR --work DIR --keep DIR --seed N --rounds N [--events LIST]
    [--known FILE] [--repeat N] [--shrink SECONDS] [--length N] [--seconds N]
    [--server PG_CONFIG] [--whole DIR] [--wal-room FILE] [--methods LIST] [--coverage DIR [--steer]] [--warming | --recovery]
  walk.pl --coverage DIR --table

=head1 DESCRIPTION

Started by tests/torture/walk, which see.  Walk::Events is the table of what may
happen, Walk::Oracle judges each start.

A list of events has one word per event:

  name[@cluster][#stream][:key=value,...]

What is not given is drawn from the stream, whose number is the event's place in
the list unless it is given.  A list begins with "setup", which has no cluster.
An event whose precondition does not hold is skipped.

=cut

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use File::Path qw(make_path remove_tree);
use Getopt::Long;
use Time::HiRes qw(sleep time);

use ServerKind;
use Walk::Client;
use Walk::Cluster;
use Walk::Coverage;
use Walk::Events;
use Walk::Plan;
use Walk::Random;
use Walk::Setup;
use Walk::Shrink;
use Walk::Util;

my %opt = (rounds => 10, seed => time, first => 0, port => 54900, shrink => 240, repeat => 1, length => 0, methods => 'fdatasync');
GetOptions(\%opt, 'pg-bin=s', 'vanilla=s', 'work=s', 'keep=s', 'seed=i', 'rounds=i', 'first=i', 'port=i', 'events=s',
	'known=s', 'repeat=i', 'shrink=i', 'length=i', 'seconds=i', 'part=s', 'server=s', 'whole=s', 'wal-room=s', 'methods=s', 'coverage=s', 'version=s', 'steer', 'warming', 'recovery', 'table')
  or die "usage: see tests/torture/walk\n";

delete $ENV{$_} for grep { /^PG/ } keys %ENV;
$ENV{LC_MESSAGES} = 'C';
$| = 1;
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

my $walk;       # the one that runs
my $began;      # when it did, until its end
my %totals;
my ($work, $keep) = @opt{qw(work keep)};
my @methods = split /,/, $opt{methods};
my $command = 'tests/torture/walk' . ($opt{server} ? " --server=$opt{server}" : '') . ($opt{whole} ? ' --whole' : '');
my $coverage = $opt{coverage} ? Walk::Coverage->new($opt{coverage}, $opt{whole}) : undef;
if ($opt{table})
{
	print $coverage->table;
	exit;
}
make_path($work, $keep, "$work/sockets");
my $server = ServerKind->new($opt{'pg-bin'});

package Walk
{
	use Walk::Util;

	sub say    ## no critic (ProhibitBuiltinHomonyms)
	{
		my ($w, $text) = @_;
		push @{ $w->{report} }, "    $text";
		print "    $text\n" if $w->{loud};
		return;
	}

	sub problem
	{
		my ($w, $text) = @_;
		$w->{failed} = 1;
		push @{ $w->{problems} }, $text;
		$w->say("FAIL: $text");
		return;
	}
}

# A cluster to copy, made once per kind.
sub template
{
	my ($checksums) = @_;
	my $t = "$work/template-$checksums";
	return $t if -d $t;
	remove_tree("$t.tmp");
	must_run("$work/initdb.log", "$opt{'pg-bin'}/initdb", '-D', "$t.tmp", '-A', 'trust', '-U', 'postgres', '--no-sync',
		'--no-instructions', '--locale=C', '--encoding=UTF8', '--wal-segsize=1', $server->checksums($checksums));
	rename("$t.tmp", $t) or die;
	return $t;
}

sub parse_event
{
	my ($text, $place) = @_;
	$text =~ /^(\w+)(?:\@(\w+))?(?:#(\d+))?(?::(.*))?$/ or die "not an event: \"$text\"\n";
	my ($name, $on, $stream, $args) = ($1, $2, $3 // $place, $4 // '');
	die "no such event: \"$name\"\n" if $name ne 'setup' && !$EVENTS{$name};
	my %args = map { /^(\w+)=(.*)$/ or die "not name=value: \"$_\"\n"; ($1 => $2) } split /,/, $args;
	return { name => $name, on => $on, stream => $stream, args => \%args, text => $args };
}

sub event_text
{
	my ($e) = @_;
	return $e->{name} . ($e->{on} ? "\@$e->{on}" : '') . "#$e->{stream}" . ($e->{text} ne '' ? ":$e->{text}" : '');
}

# What --recovery has more often than other walks: how much more.
my %CRASHING = (load => 3, checkpoint => 2, crash => 5, start => 2, start_cut => 3);

# The clusters on which an event may happen now.
sub candidates
{
	my ($name) = @_;
	return grep { $EVENTS{$name}{when}->($walk, $_) } map { $walk->{clusters}{$_} } sort keys %{ $walk->{clusters} };
}

sub draw_event
{
	my ($place) = @_;
	my $r = Walk::Random->new("$walk->{seed}/choice/$place");
	return steered_event($place, $r) if $opt{steer};
	my (@possible, $sum);
	for my $name (sort keys %EVENTS)
	{
		my @on = candidates($name) or next;
		my $weight = $EVENTS{$name}{weight};
		$weight = $weight->($walk, @on) if ref $weight;
		$weight *= $CRASHING{$name} // 1 if $opt{recovery};
		push @possible, [ $name, \@on, $weight ];
		$sum += $weight;
	}
	return if !@possible;
	my $x = $r->real * $sum;
	for my $p (@possible)
	{
		$x -= $p->[2];
		next if $x >= 0;
		return { name => $p->[0], on => $p->[1][ int($r->real * @{ $p->[1] }) ]{name}, stream => $place, args => {}, text => '' };
	}
	return;
}

# The same, by what was not yet seen; at times at random, so that no wrong plan is
# repeated for ever.
sub steered_event
{
	my ($place, $r) = @_;
	my %possible;
	my @names = grep { $_ ne 'damage_wal' || $place >= 20 } $coverage->names;
	for my $name (@names)
	{
		push @{ $possible{ $_->{name} } }, $name for grep { !$_->{dead} } candidates($name);
	}
	return if !grep { !$_->{dead} && !$_->{lossy} } values %{ $walk->{clusters} };
	my ($best, $on, $value) = (undef, undef, 0);
	for my $c ($r->real < 0.1 ? () : map { $walk->{clusters}{$_} } sort keys %possible)
	{
		my ($first, $worth) = plan($coverage->lacking, $walk, $c, \@names, $possible{ $c->{name} });
		($best, $on, $value) = ($first, $c->{name}, $worth) if $worth > $value;
	}
	if (!$best)
	{
		$on = (sort keys %possible)[ int($r->real * keys %possible) ];
		$best = $possible{$on}[ int($r->real * @{ $possible{$on} }) ];
	}
	return parse_event($best =~ s/^\w+\K/\@$on/r, $place);
}

sub run_event
{
	my ($e) = @_;
	my $r = Walk::Random->new("$walk->{seed}/$e->{name}/$e->{stream}", $e->{args});
	my $t = time;
	my ($said, $died);
	$walk->{last_event} = event_text($e);
	if ($e->{name} eq 'setup')
	{
		$said = set_up($walk, $r);
	}
	else
	{
		my ($c) = grep { !$e->{on} || $_->{name} eq $e->{on} } candidates($e->{name});
		if (!$c)
		{
			$walk->say(event_text($e) . ': not possible, skipped');
			return 0;
		}
		$e->{on} = $c->{name};
		$walk->{last_event} = event_text($e);
		$totals{"event $e->{name}"}++;
		delete $c->{ending} if $e->{name} ne 'start';
		my $wrong = $walk->{loud} && $coverage ? $coverage->note($c, $e->{name}) : undef;
		$walk->problem($wrong) if $wrong;

		# walks at the same time steer each other
		$coverage->merge if $opt{steer} && $e->{stream} % 6 == 0;
		$said = eval { $EVENTS{ $e->{name} }{run}->($walk, $c, $r) };
		chomp($died = $@) if $@;
	}
	my $drawn = $r->text;
	$walk->say(sprintf('%s%s%s  [%.1f s]', event_text($e), $drawn ne '' ? " ($drawn)" : '', $said ? ": $said" : '', time - $t));
	die "$died\n" if $died;
	return 1;
}

# One walk, given or drawn.  Returns what happened.
sub walk
{
	my ($seed, $given, $loud) = @_;
	my $dir = "$work/walk";
	remove_tree($dir);
	make_path("$dir/archive");
	delete $ENV{PMEM_IS_PMEM_FORCE};
	$walk = bless {
		seed => $seed, server => $server, dir => $dir, archive => "$dir/archive", sockets => "$work/sockets", bin => $opt{'pg-bin'},
		vanilla => $opt{vanilla}, port => $opt{port}, template => \&template, clusters => {}, problems => [], report => [],
		whole => $opt{whole}, wal_room => $opt{'wal-room'}, methods => [@methods], failed => 0, totals => \%totals, loud => $loud, loads => 0
	}, 'Walk';
	my @done;
	$walk->{done} = \@done;
	my $ok = eval {
		my @events = map { parse_event($given->[$_], $_) } 0 .. $#{ $given // [] };
		my $length = 0;
		if (!$given)
		{
			my $r = Walk::Random->new("$seed/length");
			my $how = $opt{steer} ? $coverage->setup_arguments($r)
			  : $opt{warming} ? 'warming=1,n=' . ($seed % 3 ? 2 : 3)
			  : $opt{recovery} ? 'mode=always,recovery=short,n=' . ($seed % 3 ? 1 : 2)
			  : '';
			@events = parse_event($how ? "setup:$how" : 'setup', 0);
			$length = $opt{length} || ($opt{steer} ? 30 : 6 + int($r->real * 6));
		}
		my $place = 0;
		my $finishing = 0;
		while (1)
		{
			my $e = shift @events;
			if (!$e && !$finishing)
			{
				$e = draw_event($place) if !$given && $place < $length;
				if (!$e)
				{
					last if $given;
					$finishing = 1;
					my $n = 1000;
					@events = map { parse_event($_, $n++) } finish($walk);
					$e = shift @events;
				}
			}
			last if !$e;
			push @done, undef;
			my $possible = run_event($e);
			$possible ? ($done[-1] = event_text($e)) : pop @done;
			last if $walk->{failed};
			$place++;
		}
		1;
	};
	$walk->problem("the test itself: $@") if !$ok;
	@done = map { $_ // $walk->{last_event} } @done;
	clean_up();
	return { failed => $walk->{failed}, problems => $walk->{problems}, done => \@done, report => $walk->{report},
		events => $walk->{failed} && !$ok ? undef : \@done };
}

# No server of a walk outlives it.
sub clean_up
{
	return if !$walk;
	for my $pid (keys %{ $walk->{postmasters} })
	{
		my $children = freeze($pid);
		signal_all('KILL', $pid, keys %$children);
		waitpid($pid, 0);
		wait_gone(keys %$children);
		delete $walk->{postmasters}{$pid};
	}
	unlink glob("$work/sockets/.s.PGSQL.*");
	return;
}

# The walk is over: keep its list of events, and what was counted.
sub record
{
	my ($how, @events) = @_;
	$coverage->merge(join ' ', $opt{version} // '', $walk->{seed}, $how, sprintf('%.0f', time - $began), @events) if $coverage;
	$began = undef;
	return;
}

END
{
	my $rc = $?;
	eval { record('unfinished', grep { defined } @{ $walk->{done} }) } if $began;
	eval { clean_up() };
	$? = $rc;
}

sub quoted { return join ' ', @{ $_[0] }; }

# What a failed walk came from, shortened, and kept.
sub report_failure
{
	my ($name, $seed, $result) = @_;
	my @events = @{ $result->{done} };
	my $to = "$keep/walk-" . ($name =~ s/\W+/-/gr);
	remove_tree($to);
	make_path($to);
	run_to("$work/cp.out", 'cp', '-a', '--sparse=always', $walk->{dir}, $to);
	spew("$to/report", join("\n", @{ $result->{report} }) . "\n");
	print "  kept: $to\n";
	print "  command: $command --seed $seed --events \"@events\"\n";
	return if !$opt{shrink};

	# the same kind of problem, whatever the numbers are
	my $kind = kind_of($result);
	my ($short, $tried) = shrink(\@events, $opt{shrink},
		sub {
			my (@list) = @_;
			my $again = walk($seed, \@list, 0);
			return $again->{failed} && kind_of($again) eq $kind;
		});
	print "  shortened in $tried walks: $command --seed $seed --events \"@$short\"\n";
	spew("$to/command", "$command --seed $seed --events \"@$short\"\n");
	return;
}

# By what a problem showed.
sub kind_of
{
	my ($result) = @_;
	my $text = $result->{problems}[0] // '';
	for my $kind ([ 'test', qr/^the test itself/ ], [ 'index', qr/: index:|amcheck: / ], [ 'heap', qr/verify_heapam|all-visible/ ],
		[ 'answer', qr/an answer|answers go/ ], [ 'pages', qr/pages differ|verify --pages/ ], [ 'damaged table', qr/victim/ ],
		[ 'rows', qr/contents differ|ledger has|accounts is|queue has|upd has/ ], [ 'start', qr/does not start|starts, but|hangs/ ],
		[ 'verdict', qr/pg_pcache verify|no word/ ], [ 'log', qr/: log:/ ])
	{
		return $kind->[0] if $text =~ $kind->[1];
	}
	return 'other';
}

# ---------------------------------------------------------------------------

my ($passed, $failed) = (0, 0);
my (@failures, %kinds);

sub one
{
	my ($name, $seed, $events) = @_;
	my $t = time;
	print "walk $name\n";
	$began = $t;
	my $result = walk($seed, $events, 1);
	record($result->{failed} ? 'failed' : 'ok', @{ $result->{done} });
	if ($result->{failed})
	{
		$failed++;
		my $kind = kind_of($result);
		$kinds{$kind}++;
		push @failures, "$name: $kind: " . ($result->{problems}[0] =~ s/\n.*//sr);
		report_failure($name, $seed, $result);
	}
	else { $passed++ }
	printf "  %s %s, %.0f s\n", $name, $result->{failed} ? 'FAILED' : 'ok', time - $t;
	remove_tree($walk->{dir});
	return;
}

if ($opt{known})
{
	my @lines = grep { /\S/ && !/^\s*#/ } split /\n/, slurp($opt{known});
	my ($part, $parts) = split m{/}, $opt{part} // '0/1';
	my $n = 0;
	for my $line (@lines)
	{
		my ($name, $text) = $line =~ /^([\w-]+)\s+(.*)$/ or die "not a walk: $line\n";
		next if $n++ % $parts != $part;
		one($name . ($opt{repeat} > 1 ? "-$_" : ''), $opt{seed} + $_, [ split ' ', $text ]) for 1 .. $opt{repeat};
	}
}
if ($opt{events})
{
	one("$opt{seed}" . ($_ > 1 ? "-$_" : ''), $opt{seed}, [ split ' ', $opt{events} ]) for 1 .. $opt{repeat};
}
else
{
	my $end = $opt{seconds} ? time + $opt{seconds} : undef;
	for my $n ($opt{first} .. $opt{first} + $opt{rounds} - 1)
	{
		last if $end && time >= $end;
		one($opt{seed} + $n, $opt{seed} + $n);
	}
}
print 'coverage: ', join(', ', map { "$_: $totals{$_}" } sort keys %totals), "\n";
print "failed: $_\n" for @failures;
print "walks: $passed passed, $failed failed\n";
exit($failed ? 1 : 0);
