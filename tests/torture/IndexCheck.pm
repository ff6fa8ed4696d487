
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

IndexCheck - does each index find the rows that the table has?

=head1 SYNOPSIS

  my $result = index_check(sub { my ($db, $sql) = @_; ... return $output }, $db,
    writable => 1);
  print "$_\n" for @{ $result->{problems} };

=head1 DESCRIPTION

For each valid index of each permanent table of a database, index_check() reads
the table by a sequential scan and by that index, and compares the number of
rows and a sum over their TIDs.  So a lost index entry shows, and so does one
too many.  Partial indexes are compared with the rows of their predicate.

The callback runs SQL in a database as C<psql -XAtq> does, and returns the
output; several statements may come in one string, in one session.  It reports
errors itself.

The query depends on the index method:

=over

=item btree: ORDER BY all key columns, without a sort.

=item gist, spgist, brin: the rows where the first key is null, and where not.

=item hash: each value that the sequential scan finds is looked up.

=item gin over arrays: each element that the sequential scan finds is looked up.

=back

EXPLAIN tells whether the planner uses the index.  If it prefers another one,
and the server is writable, the others are made invalid in a transaction that
is rolled back.  On a standby that is not possible; such indexes, and those of
other kinds, are counted as unforced.

Returned is a hash: checked (number of indexes), unforced and problems (texts).

=cut

package IndexCheck;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use JSON::PP qw();

our @EXPORT = qw(index_check index_lookups);

# Sessions settings that leave the planner no choice but the kind of scan.
my $COMMON = join '', map { "SET LOCAL $_;\n" } 'enable_indexonlyscan = off',
  'enable_hashjoin = off', 'enable_mergejoin = off', 'enable_material = off',
  'enable_memoize = off', 'enable_tidscan = off', 'max_parallel_workers_per_gather = 0',
  'jit = off', "statement_timeout = '300s'";
my %SCAN = (
	seq => 'SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;'
	  . ' SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = on;',
	plain => 'SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = on;'
	  . ' SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;',
	bitmap => 'SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off;'
	  . ' SET LOCAL enable_bitmapscan = on; SET LOCAL enable_sort = off;');

# The indexes of a database, with all that it takes to ask for their rows.
my $INDEXES_SQL = <<'SQL';
SELECT coalesce(json_agg(x ORDER BY index), '[]') FROM (
  SELECT i.indexrelid::regclass::text AS index, i.indexrelid::int8 AS oid,
    ic.relname AS name, i.indrelid::regclass::text AS table, a.amname AS am,
    i.indrelid::int8 AS heap,
    (SELECT json_agg(pg_get_indexdef(i.indexrelid, k, false) ORDER BY k)
     FROM generate_series(1, i.indnkeyatts) k) AS keys,
    (SELECT json_agg(i.indoption[k - 1] ORDER BY k)
     FROM generate_series(1, i.indnkeyatts) k) AS options,
    pg_get_expr(i.indpred, i.indrelid) AS predicate,
    (SELECT o.opcintype = 'anyarray'::regtype FROM pg_opclass o
     WHERE o.oid = i.indclass[0]) AS is_array
  FROM pg_index i
  JOIN pg_class ic ON ic.oid = i.indexrelid
  JOIN pg_class c ON c.oid = i.indrelid
  JOIN pg_am a ON a.oid = ic.relam
  WHERE i.indisvalid AND i.indisready AND i.indislive
    AND c.relkind IN ('r', 'm') AND c.relpersistence = 'p'
    AND c.oid >= 16384) x
SQL

=pod

=item index_lookups($index)

How to read a table by an index: a list of { seq, index, scan }, where both
queries must have the same result.  Empty if there is no way.

=cut

sub index_lookups
{
	my ($i) = @_;
	my $where = defined $i->{predicate} ? "($i->{predicate})" : 'true';
	my $key = "($i->{keys}[0])";
	my $sum = 'SELECT count(*), coalesce(sum(hashtext(row_tid::text)::int8), 0)';
	my $rows = sub { return "$sum FROM (SELECT ctid AS row_tid FROM $i->{table} WHERE $where$_[0] OFFSET 0) s" };

	if ($i->{am} eq 'btree')
	{
		my @order;
		for my $k (0 .. $#{ $i->{keys} })
		{
			my $option = $i->{options}[$k];
			push @order, "($i->{keys}[$k])" . ($option & 1 ? ' DESC' : '')
			  . ($option & 2 ? ' NULLS FIRST' : ' NULLS LAST');
		}
		return ({ seq => $rows->(''), index => $rows->(' ORDER BY ' . join(', ', @order)), scan => 'plain' });
	}
	if ($i->{am} =~ /^(?:gist|spgist|brin)$/)
	{
		my $scan = $i->{am} eq 'gist' ? 'plain' : 'bitmap';
		return map { { seq => $rows->(" AND $key $_"), index => $rows->(" AND $key $_"), scan => $scan } }
		  'IS NOT NULL', 'IS NULL';
	}

	# what to look for comes from a sequential scan: nothing matches CTE queries
	# but the table itself
	my ($values, $match, $seq);
	if ($i->{am} eq 'hash')
	{
		$values = "SELECT DISTINCT $key AS index_check_value FROM $i->{table} WHERE $where AND $key IS NOT NULL";
		$match = "$key = index_check_value";
		$seq = $rows->(" AND $key IS NOT NULL");
	}
	elsif ($i->{am} eq 'gin' && $i->{is_array})
	{
		$values = "SELECT DISTINCT e AS index_check_value FROM $i->{table}, unnest($key) e WHERE $where AND e IS NOT NULL";
		$match = "$key @> ARRAY[index_check_value]";
		$seq = "$sum FROM (SELECT DISTINCT ctid AS row_tid, e FROM $i->{table}, unnest($key) e WHERE $where AND e IS NOT NULL) s";
	}
	else { return () }
	return ({ seq => $seq, values => $values, scan => $i->{am} eq 'gin' ? 'bitmap' : 'plain',
			index => "$sum FROM index_check_values, LATERAL (SELECT ctid AS row_tid FROM $i->{table} WHERE $where AND $match OFFSET 0) s" });
}

# One transaction that reads a table by an index, and tells by which.  What to
# look up is gathered first, by a sequential scan; then the plan of the lookup
# has no other table than the one that is asked.
sub lookup_sql
{
	my ($i, $l, $tag, $force) = @_;
	my $sql = "BEGIN ISOLATION LEVEL REPEATABLE READ;\n$COMMON$SCAN{seq}\n";
	my $index = $l->{index};

	$sql .= "UPDATE pg_catalog.pg_index SET indisvalid = false WHERE indrelid = $i->{heap} AND indexrelid <> $i->{oid};\n"
	  if $force;
	$sql .= "SELECT '$tag seq ' || s::text FROM ($l->{seq}) s;\n";
	if ($l->{values})
	{
		$sql .= "SELECT coalesce(array_agg(index_check_value), '{}') AS index_check_list, "
		  . "pg_typeof(array_agg(index_check_value)) AS index_check_type FROM ($l->{values}) s \\gset\n";
		$index =~ s{\bindex_check_values\b}{unnest(:'index_check_list'::text:::index_check_type) AS index_check_values(index_check_value)};
	}
	$sql .= "$SCAN{ $l->{scan} }\n";
	$sql .= "\\echo $tag plan\nEXPLAIN (COSTS off) $index;\n\\echo $tag end\n";
	$sql .= "SELECT '$tag index ' || s::text FROM ($index) s;\n";
	return "${sql}ROLLBACK;\n";
}

# Does a plan read the table by this index, and by nothing else?
sub plan_uses
{
	my ($plan, $i) = @_;
	my @scans = $plan =~ /\b((?:Seq|Index|Index Only|Bitmap Index) Scan (?:Backward )?(?:using|on) (?:"(?:[^"]|"")+"|\S+))/g;
	my @used = grep { /(?:using|on) (?:"\Q$i->{name}\E"|\Q$i->{name}\E)$/ } @scans;

	return @used > 0 && @used == @scans;
}

=pod

=item index_check($psql, $db, writable => 0 or 1)

See above.

=cut

sub index_check
{
	my ($psql, $db, %params) = @_;
	my %r = (checked => 0, unforced => [], problems => []);
	my $json = $psql->($db, $INDEXES_SQL);
	my $indexes = eval { JSON::PP::decode_json($json) };
	my @todo;

	if (!defined $indexes)
	{
		push @{ $r{problems} }, "$db: the list of indexes: " . substr($json, 0, 200);
		return \%r;
	}
	for my $i (@$indexes)
	{
		my @lookups = index_lookups($i);

		push @{ $r{unforced} }, "$i->{index} ($i->{am})" if !@lookups;
		push @todo, { index => $i, lookup => $lookups[$_], tag => "I$i->{oid}.$_", last => $_ == $#lookups } for 0 .. $#lookups;
	}
	for my $force (0, 1)
	{
		next if !@todo || ($force && !$params{writable});
		my $out = $psql->($db, join '', map { lookup_sql($_->{index}, $_->{lookup}, $_->{tag}, $force) } @todo);
		my @again;
		for my $t (@todo)
		{
			my ($i, $tag) = ($t->{index}, quotemeta $t->{tag});
			my ($seq) = $out =~ /^$tag seq (.*)$/m;
			my ($found) = $out =~ /^$tag index (.*)$/m;
			my ($plan) = $out =~ /^$tag plan\n(.*?)^$tag end$/ms;

			if (!defined $seq || !defined $found || !defined $plan)
			{
				push @{ $r{problems} }, "$db: $i->{index}: no answer";
				next;
			}
			if (!plan_uses($plan, $i)) { push @again, $t; next }
			$r{checked}++ if $t->{last};
			push @{ $r{problems} }, "$db: $i->{table}: (rows, sum of TIDs) by sequential scan $seq, by $i->{am} index $i->{index} $found"
			  if $seq ne $found;
		}
		@todo = @again;
	}
	push @{ $r{unforced} }, "$_->{index}{index} ($_->{index}{am})" for @todo;
	return \%r;
}

1;
