
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::HotAndCold - are the hottest pages kept when shared_buffers shrinks?

=head1 DESCRIPTION

Two tables, one of which is used more than the other, and a start that keeps
and drops what pg_pcache verify has foretold.

=cut

package PCache::HotAndCold;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PCache;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  make_hot_and_cold
  hot_and_cold_sums
  warm_hot_and_cold
  foretold_start
);

# Tables with so many rows, on a server that runs, and the extensions to look at them.
sub make_hot_and_cold
{
	my ($node, $cold, $hot) = @_;

	$node->safe_psql('postgres', qq{
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE EXTENSION pageinspect;
CREATE TABLE cold (id int PRIMARY KEY, v text);
CREATE TABLE hot (id int PRIMARY KEY, v text);
INSERT INTO cold SELECT i, repeat(md5(i::text), 56) FROM generate_series(1, $cold) i;
INSERT INTO hot SELECT i, repeat(md5(i::text), 56) FROM generate_series(1, $hot) i;
VACUUM (ANALYZE, FREEZE) cold, hot;
CHECKPOINT});
	return;
}

# Have the cold table in the first slots of an empty pool, and then the hot one.
# The server is down, and runs afterwards.
sub warm_hot_and_cold
{
	my ($node, $name) = @_;

	is((pcache($node, 'rebuild', '--reset', '--force'))[0], 0, $name);
	$node->start;
	$node->safe_psql('postgres', q{
SELECT pg_prewarm('cold');
SELECT pg_prewarm('hot') FROM generate_series(1, 6)});
	return;
}

# What both tables contain.
sub hot_and_cold_sums
{
	my ($node) = @_;

	return $node->safe_psql('postgres', q{
SELECT count(*), sum(hashtextextended(id || v, 0)) FROM cold
UNION ALL SELECT count(*), sum(hashtextextended(id || v, 0)) FROM hot});
}

# Start the server: it keeps and drops what pg_pcache verify has foretold, and
# says so in its log.  Returns the verdict, the outcome, and where the log began.
sub foretold_start
{
	my ($node, $name) = @_;
	my $verdict = verify_json($node);
	my ($offset, $outcome, %dropped);

	%dropped = map { my $reason = s/_/ /gr; $reason => $verdict->{pages}{$_} }
	  grep { !/^(?:kept|free)$/ && $verdict->{pages}{$_} > 0 } keys %{ $verdict->{pages} };
	is($verdict->{rc}, 0, "$name: pg_pcache verify says warm");
	$offset = log_offset($node);
	$node->start;
	$outcome = start_outcome($node, $offset);
	is($outcome->{start}, 'warm', "$name: warm start") or diag($outcome->{reason});
	is($outcome->{kept}, $verdict->{pages}{kept}, "$name: kept what was foretold");
	is($outcome->{saved}, $verdict->{saved_pages}, "$name: of as many pages");
	# names in the log have capitals and spaces as they are
	is_deeply({ map { lc($_) => $outcome->{dropped}{$_} } keys %{ $outcome->{dropped} } },
		\%dropped, "$name: dropped what was foretold");
	return ($verdict, $outcome, $offset);
}

1;
