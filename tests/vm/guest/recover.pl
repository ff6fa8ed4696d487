#!/usr/bin/perl

# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

recover.pl - recover a cluster with its pool, and without, and compare

=head1 SYNOPSIS

  recover.pl --pg-bin DIR --pgdata DIR --pool FILE --work DIR --mode MODE
    --acknowledged DIR

=head1 DESCRIPTION

For the scenario "powercut", in the guest, with what tests/torture compares two
recoveries with.  A is the data directory with its pool, B a copy of it that
recovers without one.  The acknowledged rows are in files of that directory, with the
output of the sessions that have inserted them.  A is down afterwards.

Prints what it finds; the exit status tells whether all is right.

=cut

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../../torture";

use File::Path qw(make_path remove_tree);
use Getopt::Long;

use LibraryPool;
use PageCompare qw(verify_pages);
use Programs;
use ServerKind;
use Torture::Compare;
use Torture::Contents;
use Torture::Log;
use Torture::PoolFile;
use Torture::Server;
use Torture::State;

# What the modules are told of this run: files lose what was not synced.
%opt = (whole => 1);
GetOptions(\%opt, 'pg-bin=s', 'pgdata=s', 'pool=s', 'work=s', 'mode=s', 'acknowledged=s') or die "usage: see perldoc $0\n";
$bin = $opt{'pg-bin'};
$server = ServerKind->new($bin);
$dir = $work = $opt{work};
$port = 5432;
$ENV{PGHOST} = '/tmp';
$ENV{PGUSER} = 'postgres';
$ENV{LC_MESSAGES} = 'C';
$| = 1;
remove_tree($dir, { keep_root => 1 });
my ($a, $b) = ($opt{pgdata}, "$dir/b");

sub pg_ctl
{
	my ($data, @args) = @_;
	return run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-w', '-t', 900, @args) == 0;
}

# Returns whether the server has started.
sub start
{
	my ($data, $log, @settings) = @_;
	my @args = ('-l', $log, '-o', join(' ', "-k /tmp -c listen_addresses= -p $port", map { "-c $_" } @QUIET, @settings), 'start');
	return 1 if pg_ctl($data, @args);
	# as in Torture::Round
	return slurp($log) =~ $TOMBSTONE && pg_ctl($data, @args);
}

sub stop
{
	my ($data) = @_;
	pg_ctl($data, '-m', 'fast', 'stop') or problem("the server in $data does not stop");
	return;
}

# B is alone with its files, so it need not sync them.
sub start_b { return start($b, "$dir/b.log", $server->without_pool, 'wal_sync_method=fdatasync', 'fsync=off') }

sub finish
{
	my ($summary) = @_;
	print @problems ? scalar(@problems) . " problems\n" : "$summary\n";
	exit(@problems ? 1 : 0);
}

unlink "$a/postmaster.pid";
my ($sb, $descs) = read_pool($opt{pool});
my %tags;
$tags{ $_->{tag} }++ for @$descs;
problem("in the pool twice: $_") for grep { $tags{$_} > 1 } sort keys %tags;
say_line("  superblock: state $sb->{state}, " . scalar(@$descs) . ' pages are saved');

copy_dir($a, $b);
my $wal = readlink "$b/pg_wal";
if (defined $wal)
{
	unlink "$b/pg_wal" or die;
	copy_dir($wal, "$b/pg_wal");
}

my $ok_a = start($a, "$dir/a.log") or problem('recovery with the pool failed: ' . substr(slurp("$dir/a.log"), -1500));
stop($a) if $ok_a;
my $ok_b = start_b() or problem('recovery without the pool failed: ' . substr(slurp("$dir/b.log"), -1500));
stop($b) if $ok_b;
finish() if !$ok_a || !$ok_b;
check_log("$dir/a.log", 'A');
check_log("$dir/b.log", 'B');
my ($line, $dropped) = outcome("$dir/a.log");
say_line("  A: $line $dropped");
# In mode planned_restart, a save that was cut off is not believed.
my ($why) = $opt{mode} eq 'always' ? judge_after_power_loss($line, ledger => 1) : $line =~ /^kept [1-9]|was not shut down cleanly/ ? undef : $line;
problem("A is cold: $why") if defined $why;

my ($result, $dead_in_a) = compare_files($a, $b);
start_b() or problem('B does not start again');
my @acknowledged = grep { /^\d+-\d+-\d+\z/ } map { split /\n/, slurp($_) } glob "$opt{acknowledged}/*.out";
check_acknowledged('B', @acknowledged);
rollback_prepared();
my $contents = contents();
my $known = relations();
stop($b);
check_dead_entries($dead_in_a, $b, $known);
report_differences($result, $known, { conf => { full_page_writes => 'on' } }, $dir, $sb, $descs);
check_pool_against_files($a, $opt{pool}, 'A');
my (undef, $wrong) = verify_pages($bin, $a, $opt{pool}, "$dir/verify.out");
problem("pg_pcache verify --pages: $wrong") if defined $wrong;

start($a, "$dir/a2.log") or problem('A does not start again');
my ($again) = outcome("$dir/a2.log");
problem("A is not warm after a clean stop: $again") if $again !~ /^kept [1-9]/;
rollback_prepared();
compare_contents(contents(), $contents, 'A after a clean stop, and B');
check_sums('A');
check_acknowledged('A', @acknowledged);
check_indexes('A');
amcheck('A');
stop($a);
check_log("$dir/a2.log", 'A later');
remove_tree($b);
finish(sprintf('%s; %d files, %d pages, %d acknowledged rows', $line =~ s/,.*//r, $result->{files}, $result->{pages}, scalar @acknowledged));
