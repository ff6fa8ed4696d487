#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

torture.pl - kill servers at random, recover with the pool and without, compare

=head1 SYNOPSIS

  torture.pl --pg-bin DIR --rounds N --seed N --work DIR --keep DIR
    [--seconds N] [--whole DIR] [--pool-only] [--until-failure] [--set NAME=VALUE]...

=head1 DESCRIPTION

Started by tests/torture/run, which see.  This program runs the rounds and keeps
those that fail; what happens in a round is in Torture::Round:

  Torture::State      what does every part of the test know of the run and of its round?
  Torture::Plan       what does a seed choose?
  Torture::Round      what happens in one round?
  Torture::Server     how is a server made, configured, started, stopped and asked?
  Torture::Processes  which processes does a server have, and how do they die?
  Torture::Load       what works on the server until it crashes?
  Torture::Crash      how does a server end?
  Torture::Reboot     what does a reboot of the host do to the pool, and to its image?
  Torture::PowerCut   where is the power cut, and what is on media then?
  Torture::Log        what does a server say in its log?
  Torture::PoolFile   what does a pool file hold?
  Torture::Contents   is what SQL finds in the databases right?
  Torture::Compare    do two recoveries of the same crash agree?

The modules beside this program are those that tests/torture/walk uses, too.

The server is one with the library pg_pcache.  In mode always, the pages that it has left
when it was killed are judged before it starts again, by the rule of the library and
against the files (LibraryPool), and the start must keep just these.  In mode
planned_restart most crashes are clean stops; the others must be cold.

With --whole the power is cut at each crash: the pool that recovery finds is the one
that the shim in that directory (tests/powercut) kept apart, on media that another
boot of the host finds, and what was not synced of the files is lost as well (FileCut).

With --pool-only a round ends once the pool was looked at after the crash, and
with --until-failure the first failed round is the last: for
tests/powercut/mutants.

=cut

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;

use File::Path qw(make_path remove_tree);
use Getopt::Long;
use Time::HiRes qw(time);

use ServerKind;
use Torture::Load;
use Torture::Processes;
use Torture::Round;
use Torture::Server;
use Torture::State;

%opt = (rounds => 20, seed => time ^ $$, port => 54400 + $$ % 1000);
GetOptions(\%opt, 'pg-bin=s', 'rounds=i', 'seconds=i', 'seed=i', 'work=s', 'keep=s', 'first=i', 'port=i', 'set=s%', 'whole=s', 'pool-only', 'until-failure')
  or die "usage: see tests/torture/run\n";
$bin = $opt{'pg-bin'};
$server = ServerKind->new($bin);
$work = $opt{work};
%set = %{ $opt{set} // {} };
my $keep = $opt{keep};

delete $ENV{$_} for grep { /^PG/ } keys %ENV;
$ENV{LC_MESSAGES} = 'C';
$ENV{PGHOST} = $work;
$ENV{PGUSER} = 'postgres';
$ENV{PGDATABASE} = 'postgres';
$| = 1;

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
	last if defined $opt{seconds} && time - $^T >= $opt{seconds};
}
say_line('coverage: ' . join(', ', map { "$_: $totals{$_}" } sort keys %totals));
say_line("failed seeds: @failed") if @failed;
say_line("rounds: $passed passed, $failed failed");
exit($failed ? 1 : 0);
