# Copyright (c) 2026, the persistent-cache developers

# What the tests of pg_hotset have in common: a primary with tables that only
# reads touch, its standbys, and what is in their shared buffers.

package Hotset;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

our @EXPORT = qw(new_primary new_standby start_killed add_table heat pages stat_of wait_until wait_for_rounds is_warm);

# A primary with the extension.
sub new_primary
{
	my ($name, %arg) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(allows_streaming => 1, %{ $arg{init} // {} });
	$node->append_conf('postgresql.conf', <<EOF . ($arg{conf} // ''));
shared_buffers = 16MB
autovacuum = off
bgwriter_lru_maxpages = 0
log_min_messages = info
EOF
	$node->start;
	$node->safe_psql('postgres',
		'CREATE EXTENSION pg_hotset; CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm');
	return $node;
}

# A standby of this server, of a new base backup, not started.
sub new_standby
{
	my ($name, $primary, %arg) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$node->init_from_backup($primary, $name, has_streaming => 1);
	$node->append_conf('postgresql.conf', <<EOF . ($arg{conf} // ''));
shared_preload_libraries = 'pg_hotset'
pg_hotset.interval = 1s
pg_hotset.timeout = 5s
EOF
	return $node;
}

# Start a server that was killed.  The children of its postmaster take a moment to notice.
sub start_killed
{
	my ($node) = @_;

	foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		# it does not know yet that there is no server
		$node->{_pid} = undef;
		return if $node->start(fail_ok => 1);
		Time::HiRes::usleep(100_000);
	}
	die $node->name . ' does not start';
}

# A table of so many pages, frozen and on disk.
sub add_table
{
	my ($node, $table, $pages, %arg) = @_;

	$node->safe_psql($arg{database} // 'postgres', <<EOF);
CREATE TABLE $table AS SELECT i, repeat('x', 2000) AS filler FROM generate_series(1, @{[ $pages * 4 ]}) i;
ALTER TABLE $table ALTER filler SET STORAGE PLAIN;
VACUUM (FREEZE) $table;
CHECKPOINT;
EOF
}

# The pages of the table that are in shared buffers, by usage count.
sub heat
{
	my ($node, $table, %arg) = @_;

	return $node->safe_psql($arg{database} // 'postgres', <<EOF);
SELECT usagecount || ':' || count(*) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('$table') AND relforknumber = 0 AND
	  reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
GROUP BY usagecount ORDER BY usagecount
EOF
}

# How many pages of the table are in shared buffers?
sub pages
{
	my $sum = 0;

	$sum += $_ foreach map { (split /:/)[1] } split /\n/, heat(@_);
	return $sum;
}

# An expression over the columns of pg_stat_hotset.
sub stat_of
{
	my ($node, $expression) = @_;

	return $node->safe_psql('postgres', "SELECT $expression FROM pg_stat_hotset");
}

sub wait_until
{
	my ($node, $condition, $name) = @_;

	ok($node->poll_query_until('postgres', "SELECT $condition FROM pg_stat_hotset"), $name);
}

# Wait for so many more rounds.
sub wait_for_rounds
{
	my ($node, $rounds) = @_;

	foreach (1 .. $rounds)
	{
		my $before = stat_of($node, 'compared') || '-infinity';

		$node->poll_query_until('postgres', "SELECT compared > '$before' FROM pg_stat_hotset")
		  or die 'the worker does nothing';
	}
}

# Does the standby come to hold what the primary holds of these tables?
sub is_warm
{
	my ($standby, $primary, $name, @tables) = @_;

	foreach my $table (@tables)
	{
		my $expected = pages($primary, $table);
		my $found;

		foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
		{
			$found = pages($standby, $table);
			last if $found == $expected;
			Time::HiRes::usleep(100_000);
		}
		is($found, $expected, "$name: all pages of $table that the primary has are here");
	}
}

1;
