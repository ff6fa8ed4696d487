
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCacheKilled - what is done to a cluster between a kill and the next start

=head1 SYNOPSIS

  use PCacheKilled;

  kill_all($node);
  stock_run($node, 'fast', 'UPDATE t SET i = i + 1');
  start_cold($node, qr/^the pool knows of checkpoint /, 'a stock run');

=head1 DESCRIPTION

For tests of mode always, beside PCacheModule.

=cut

package PCacheKilled;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCacheModule;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  stock_start
  stock_stop
  stock_run
  stop_in_redo
  children
  child
  frozen_copy
  exchange
  evict
  start_warm
  shortened
);

# The data directory with a server that has not the library.
sub stock_start
{
	my ($node, @more) = @_;

	local %ENV = $node->_get_env();
	unlink $node->data_dir . '/postmaster.pid';
	system_or_bail('pg_ctl', '-D' => $node->data_dir, '-l' => $node->logfile . '.stock', '-o' => "-c shared_preload_libraries='' -c pcache.mode=off", @more, 'start');
	return;
}

sub stock_stop
{
	my ($node, $mode) = @_;

	local %ENV = $node->_get_env();
	system_or_bail('pg_ctl', '-D' => $node->data_dir, '-m' => $mode, '-w', 'stop');
	return;
}

sub stock_run
{
	my ($node, $mode, $sql) = @_;

	stock_start($node, '-w');
	$node->safe_psql('postgres', $sql) if $sql;
	stock_stop($node, $mode);
	return;
}

# The processes that have this parent, by PID: what "ps" shows of each.
sub children
{
	my ($parent) = @_;
	my %children;

	for my $stat (glob '/proc/[0-9]*/stat')
	{
		my $line = eval { slurp_file($stat) } // next;

		next if $line !~ /^(\d+) \(.*\) \S+ $parent /s;
		my $pid = $1;
		$children{$pid} = (eval { slurp_file("/proc/$pid/cmdline") } // '') =~ s/\0+/ /gr;
	}
	return \%children;
}

# The child of a postmaster that has this in its title.
sub child
{
	my ($postmaster, $title) = @_;
	my $children = children($postmaster);
	my ($pid) = grep { $children->{$_} =~ /$title/ } keys %$children;

	return $pid;
}

# A server that has just been started, and logs there, does not get on in redo.  Returns
# the postmaster, once its startup process is stopped.
#
# That may hold a spinlock then, for which the worker would wait.  So with sighted => 1 it
# is stopped once more until the worker gets on.
sub stop_in_redo
{
	my ($node, $log, $offset, %params) = @_;

	for (1 .. 200 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $text = -e $log ? slurp_file($log, $offset) : '';

		if ($text =~ /redo starts/)
		{
			my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
			my $startup = child($postmaster, 'startup') // die 'redo is done already';

			for (1 .. 20)
			{
				kill 'STOP', $startup;
				die 'redo is done already' if slurp_file($log, $offset) =~ /redo done/;
				return $postmaster if !$params{sighted} || is_sighted($node, 3);
				kill 'CONT', $startup;
				select undef, undef, undef, 0.001;
			}
			die 'the worker does not get on';
		}
		select undef, undef, undef, 0.005;
	}
	die "no redo in $log";
}

# A copy of the data directory of a server that runs, of one moment, as a file system or a
# volume manager would make it.
sub frozen_copy
{
	my ($node, $copy) = @_;
	my @pids = ($node->{_pid}, keys %{ children($node->{_pid}) });

	kill 'STOP', @pids;
	system_or_bail('cp', '-a', $node->data_dir, $copy);
	kill 'CONT', @pids;
	return;
}

# Have a copy be the data directory of a node that is down.  Files keep the time of their
# last change, as when a file system is rolled back.
sub exchange
{
	my ($node, $copy) = @_;

	rename $node->data_dir, $node->data_dir . '.gone' or die;
	rename $copy, $node->data_dir or die;
	unlink $node->data_dir . '/postmaster.pid';
	system_or_bail('rm', '-rf', $node->data_dir . '.gone');
	return;
}

# Have what is in shared buffers be written and leave them, without a checkpoint.  The node
# needs a table "filler" that is larger than they are.
sub evict
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{SELECT pg_prewarm('filler')}) for 1 .. 6;
	return;
}

# A test: a server that was killed keeps pages, at least so many (default 1), and contents
# are right.  at_least => 0: it keeps none.  changed => 1: it drops some because their file was changed, 0: it does not.
# Returns the outcome.
sub start_warm
{
	my ($node, $name, %params) = @_;
	my $outcome = start_and_compare($node, $name, %params);
	my $changed = $outcome->{dropped}{'file changed'} // 0;

	if (($params{at_least} // 1) == 0)
	{
		is($outcome->{start}, 'cold', "$name: cold");
		like($outcome->{reason} // '', qr/^none of the \d+ saved pages can be kept$/, "$name: for want of pages");
	}
	else
	{
		is($outcome->{start}, 'warm', "$name: warm") or diag($outcome->{reason} // $outcome->{log});
		cmp_ok($outcome->{kept} // -1, '>=', $params{at_least} // 1, "$name: kept " . ($outcome->{kept} // 'no') . ' pages');
	}
	cmp_ok($changed, $params{changed} ? '>' : '==', 0, "$name: $changed pages were dropped, file changed") if defined $params{changed};
	return $outcome;
}

# What the log of a start says of young pages, and of records.
sub shortened
{
	my ($outcome) = @_;
	my ($young) = $outcome->{log} =~ /persistent cache: (\d+) of these pages are younger than the redo point/;
	my ($skipped, $called) =
	  $outcome->{log} =~ /persistent cache: recovery skipped (\d+) records, whose pages were kept, and replayed (\d+) others/;

	return { young => $young // 0, skipped => $skipped // 0, called => $called // 0 };
}

1;
