
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Contents - is what SQL finds in the databases right?

=head1 DESCRIPTION

Of the server that runs on $port.  $who names it in problems.

=cut

package Torture::Contents;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use IndexCheck;
use Programs;
use Torture::Server;
use Torture::State;

our @EXPORT = qw(rollback_prepared contents compare_contents relations check_sums check_acknowledged check_indexes
  amcheck);

# Those that one can connect to.
sub databases
{
	my $all = psql('postgres', "SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1");
	return split /\n/, $all;
}

# No prepared transaction is to hold locks.
sub rollback_prepared
{
	my $sql = psql('postgres', "SELECT format('ROLLBACK PREPARED %L;', gid) || E'\\n' FROM pg_prepared_xacts ORDER BY gid");
	psql('postgres', $sql) if $sql;
	return;
}

# For psql: number of rows and a checksum of each table.
my $TABLES_SQL = <<'SQL';
SELECT format('SELECT %L, count(*), coalesce(sum(hashtext(t::text)::bigint), 0) FROM %s t',
              c.oid::regclass, c.oid::regclass)
  FROM pg_class c
 WHERE relkind IN ('r', 'm') AND relpersistence <> 't'
   AND relname NOT IN ('pg_statistic', 'pg_stat_statements')
 ORDER BY c.oid \gexec
SQL

# The result of that in all databases: a reference to a hash, by database.
sub contents
{
	my %c;
	for my $db (databases())
	{
		$c{$db} = psql($db, $TABLES_SQL);
	}
	return \%c;
}

# Two such results must be the same.
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

# What the relation files belong to: a reference to a hash, path => { name, kind,
# persistence, heap }, the latter being the path of an index's table.
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

# What pgbench leaves true must be true.
sub check_sums
{
	my ($who) = @_;
	my $r = psql('postgres',
		"SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers) AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches) AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)");
	problem("$who: TPC-B sums do not agree") if $r ne 't';
	return;
}

# Has the server all that was acknowledged before the power went?
sub check_acknowledged
{
	my ($who, @rows) = @_;
	my %there = map { $_ => 1 } split /\n/, psql('postgres', 'SELECT id FROM acknowledged');
	my @lost = grep { !$there{$_} } @rows;
	problem(sprintf('%s: %d of %d acknowledged rows are lost: %s', $who, scalar @lost, scalar @rows, "@lost[0 .. ($#lost > 3 ? 3 : $#lost)]")) if @lost;
	$totals{'acknowledged rows'} += @rows;
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

# All that PostgreSQL has for checking heaps, visibility maps and indexes.
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
	my $rc = run_to($out, "$bin/pg_amcheck", '-p', $port, '--all', '--heapallindexed', '--parent-check', $server->{major} < 17 ? () : '--checkunique', '--no-dependent-toast', '-j', 2);
	problem("$who: pg_amcheck: " . substr(slurp($out), 0, 1500)) if $rc != 0;

	# the index methods that pg_amcheck does not know
	my %check = $server->index_checks;
	for my $db ($check{gin} ? databases() : ())
	{
		my $gin = psql($db, "SELECT count($check{gin}) FROM pg_class c JOIN pg_am a ON a.oid = relam JOIN pg_index i ON indexrelid = c.oid WHERE amname = 'gin' AND relkind = 'i' AND indisvalid AND relpersistence = 'p'");
	}
	return;
}

1;
