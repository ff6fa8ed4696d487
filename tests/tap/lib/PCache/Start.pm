
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Start - was a start warm or cold, and does the server say why?

=head1 DESCRIPTION

is_warm() and is_cold() are what most tests come down to.  Both look at the
server's own words in the log and at what is really in shared buffers.

A place in the log is given as an offset in bytes, from log_offset().  An
outcome is a reference to a hash: start ("warm", "cold", or undef if the server
has not said it), reason (of a cold one), kept, saved and slots (numbers of a
warm one), dropped (reason => number of pages), log (the text).

=cut

package PCache::Start;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCache::Buffers;
use PCache::Tables;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  log_offset
  start_outcome
  is_warm
  is_cold
  start_nowait
  start_and_fail
  start_fails
  restart_warm
);

# The share of valid buffers that a warm start has to keep.
use constant KEPT_RATIO => 0.999;

# Where the log of a node ends now.
sub log_offset
{
	my ($node) = @_;
	return -s $node->logfile // 0;
}

# The pages that were dropped, by reason, as the last such line of a log says.
sub dropped_in
{
	my ($log) = @_;
	my ($list) = $log =~ /.*DETAIL:  Dropped: ([^\n]*)\.(?:\n|$)/s;
	return { map { /^(.*) (\d+)$/ ? ($1 => $2) : () } split /, /, $list // '' };
}

# What the server said of its last start since an offset in its log: an outcome.
sub start_outcome
{
	my ($node, $offset) = @_;
	my $log = slurp_file($node->logfile, $offset // 0);
	my %outcome = (log => $log, dropped => {});

	while ($log =~ /persistent cache: kept (\d+) of (\d+) saved pages in (\d+) slots[^\n]*(\n[^\n]*DETAIL:  Dropped: [^\n]*\.)?/g)
	{
		@outcome{qw(start kept saved slots)} = ('warm', $1, $2, $3);
		$outcome{dropped} = dropped_in($4 // '');
	}
	if ($log =~ /.*LOG:  persistent cache: starting cold: ([^\n]*)/s
		&& (!defined $outcome{start}
			|| rindex($log, 'starting cold') > rindex($log, 'persistent cache: kept')))
	{
		%outcome = (%outcome, start => 'cold', reason => $1, kept => 0, dropped => dropped_in($log));
	}
	return \%outcome;
}

# A test: did the start since offset keep what was valid, given as the number of
# valid buffers before?  Looks at the log, and at the buffers themselves.
# Returns the outcome.
sub is_warm
{
	my ($node, $offset, $valid, $name) = @_;
	my $outcome = start_outcome($node, $offset);

	if (($outcome->{start} // '') ne 'warm')
	{
		fail("$name: warm start");
		diag('cold: ' . ($outcome->{reason} // 'no word of it in the log'));
		return $outcome;
	}
	cmp_ok($outcome->{kept}, '>=', KEPT_RATIO * $valid,
		"$name: kept $outcome->{kept} of $valid valid buffers");
	cmp_ok(valid_buffers($node), '>=', $outcome->{kept},
		"$name: they are in shared buffers");
	return $outcome;
}

# A test: did the start since offset keep nothing, for the reason given as a
# pattern?  No table of data_tables() may have been read since.  Returns the
# outcome.
sub is_cold
{
	my ($node, $offset, $reason, $name) = @_;
	my $outcome = start_outcome($node, $offset);

	is($outcome->{start}, 'cold', "$name: cold start");
	like($outcome->{reason} // '', $reason, "$name: for the right reason");
	is(cached_table_pages($node), 0, "$name: no page of the tables is cached");
	return $outcome;
}

# Start a server, and do not wait for it to accept connections.
sub start_nowait
{
	my ($node) = @_;
	my $pidfile = $node->data_dir . '/postmaster.pid';

	# what a crash has left would be taken for the new one
	unlink $pidfile;
	local %ENV = $node->_get_env(PGAPPNAME => undef);
	system_or_bail('pg_ctl', '--no-wait', '--pgdata' => $node->data_dir,
		'--log' => $node->logfile, 'start');
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if -s $pidfile && slurp_file($pidfile) =~ /\n/;
		select undef, undef, undef, 0.1;
	}
	$node->_update_pid(1);
	return;
}

# Start a server that is to fail, and return what it logged.  Unlike
# $node->start(fail_ok => 1), fine with one that fails after pg_ctl has taken
# it for started.
sub start_and_fail
{
	my ($node, $name) = @_;
	my $offset = log_offset($node);
	my $pidfile = $node->data_dir . '/postmaster.pid';

	{
		local %ENV = $node->_get_env();
		PostgreSQL::Test::Utils::system_log('pg_ctl', '--wait',
			'--pgdata' => $node->data_dir,
			'--log' => $node->logfile,
			'start');
	}
	# one that becomes ready for read-only connections may still give up recovery
	my $waits = 10 * $PostgreSQL::Test::Utils::timeout_default;
	while (-e $pidfile && $waits-- > 0)
	{
		$waits = 300 if $waits > 300 && (eval { slurp_file($pidfile) } // '') =~ /^ready/m;
		select undef, undef, undef, 0.1;
	}
	if (-e $pidfile)
	{
		fail("$name: the server does not start");
		system_or_bail('pg_ctl', '--pgdata' => $node->data_dir, 'stop');
	}
	else
	{
		pass("$name: the server does not start");
	}
	return slurp_file($node->logfile, $offset);
}

# A test: the server must refuse to start, with this pattern in its log.
sub start_fails
{
	my ($node, $pattern, $name) = @_;

	like(start_and_fail($node, $name), $pattern, "$name: for the right reason");
	return;
}

# The proof that a cluster is all right again: a clean stop, and a warm start.
# Returns the outcome.
sub restart_warm
{
	my ($node, $name) = @_;
	my $valid = warm_up($node);
	my $offset = log_offset($node);

	$node->restart;
	return is_warm($node, $offset, $valid, $name);
}

1;
