
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Log - what does a server say in its log?

=head1 DESCRIPTION

$log is the path of a log file.

=cut

package Torture::Log;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use LibraryPool;
use Programs;
use Torture::State;

our @EXPORT = qw($TOMBSTONE outcome short_recovery redo_seconds check_log);

# What an unpatched server says as well, at its first start: redo makes the init fork of
# an unlogged table, whose main fork is there already.  Its transaction had rolled back
# without that being durable, and left an empty file; or a power cut took the name of the
# init fork only.
our $TOMBSTONE = qr/FATAL:  could not create file "(?:base|pg_tblspc\/\d+\/PG_\w+)\/[\d\/]+": File exists/;

# What the last start in it made of the pool, and what it dropped: two texts.  What was there
# before an offset does not count.
sub outcome
{
	my ($log, $offset) = @_;
	my $text = slurp($log, $offset);
	my @lines = $text =~ /persistent cache: ((?:kept|starting cold)[^\n]*)/g;
	my @detail = $text =~ /(Dropped: [^\n]*)/g;
	return (@lines ? $lines[-1] : '', @detail ? $detail[-1] : '');
}

# What the last start in it says of young pages, of a round with the plan $s: see LibraryPool.
# Undef if recovery is not to be short.
sub short_recovery
{
	my ($log, $s, $offset) = @_;
	my $short = shortened(slurp($log, $offset));
	return if ($s->{conf}{'pcache.recovery'} // 'full') ne 'short' && !$short->{young};
	$totals{'starts with young pages'}++ if $short->{young};
	$totals{'young pages'} += $short->{young};
	$totals{'records skipped'} += $short->{skipped};
	$totals{'records of these kinds replayed'} += $short->{called};
	$totals{'recovery not shortened: WAL could not be read so far'}++ if $short->{refused};
	say_line("    young pages $short->{young}, records skipped $short->{skipped}, replayed $short->{called}" . ($short->{refused} ? ', refused' : ''));
	return $short;
}

# How long redo took, 0 if there was none.
sub redo_seconds
{
	my ($log) = @_;
	return slurp($log) =~ /redo done at .* elapsed: ([0-9.]+) s/ ? $1 : 0;
}

# What no server should say; check_log() knows the exceptions.  "canceling
# authentication due to timeout" is what a session says that a stop finds there.
my $BAD = qr/PANIC|TRAP:|invalid page|unexpected data beyond EOF|xlog flush request|references to invalid pages|page verification failed|could not read block|incorrect resource manager|FATAL:\s++(?!the database system|terminating|sorry|connection to client lost|canceling authentication|database .* does not exist|cannot connect to invalid database)|persistent cache.*(?:WARNING|violat)|WARNING: .*persistent cache|visibility map bit is set|incorrectly|corrupt|duplicate key.*pg_|could not access status|tuple concurrently|segfault|was terminated by signal (?!9)/;

# The text of a log without what says that a map was torn: redo does not mend these
# pages, and makes them anew.  The name of the relation has quotes since PostgreSQL 18.
sub without_torn_maps
{
	my ($text) = @_;
	my $zeroed = qr/[^\n]*invalid page in block \d+ of relation "?[^"\s]*_(?:fsm|vm)"?; zeroing out page\n/;
	$text =~ s/^[^\n]* CONTEXT:  [^\n]*\n//mg;
	$text =~ s/(?:^[^\n]*page verification failed[^\n]*\n)?(?:^$zeroed)+//mg;
	return $text;
}

# Each kind of line that no server should say is a problem, once.
sub check_log
{
	my ($log, $who) = @_;
	my %seen;
	for my $line (split /\n/, $opt{whole} ? without_torn_maps(slurp($log)) : slurp($log))
	{
		next unless $line =~ $BAD;
		# who started that server has judged it
		next if $who eq 'server' && $line =~ $TOMBSTONE;
		# where WAL ends: a kill cuts a write off within a page, and sectors that were not
		# synced may be lost
		next if $line =~ /startup LOG:  incorrect resource manager data checksum/;
		# the server does not sync it
		next if $opt{whole} && $line =~ /corrupted statistics file/;
		# who started that server has judged this, too
		next if $line =~ /WARNING:  the last start with persistent cache pool .* did not become ready/;
		next if $line =~ /tuple concurrently (?:updated|deleted)|possibly corrupted shared memory|This probably means that some data is corrupted/;
		(my $key = $line) =~ s/\d+/N/g;
		problem("$who log: $line") unless $seen{$key}++;
	}
	return;
}

1;
