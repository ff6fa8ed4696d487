
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Ask - what a server answers: while it starts, and once it has settled

=cut

package Walk::Ask;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use Time::HiRes qw(sleep time);

use IndexCheck;
use Walk::Load;
use Walk::Util;

our @EXPORT = qw(goal_of watch contents check_indexes check_invariants);

# An error that any standby or server at its start may answer with.
my $PATIENCE = qr/^(?:lost|FATAL 57P0|FATAL 53300|ERROR 57014 canceling statement due to conflict|ERROR 40001|ERROR 25006|ERROR 55P03)/;

# A standby that cannot follow its primary says so again and again.
my $CANNOT_FOLLOW = qr/forked off current database system timeline|is behind recovery timeline|is ahead of the WAL flush position|has already been removed/;

my $STATE_SQL = q{SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() - '0/0',
  CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() END};

# While replay is delayed or paused, the startup process may hold the lock of a
# table for as long.
my $LOCKED_SQL = q{SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted)};

# Where a standby gets to when it has all that there is, or nothing.
sub goal_of
{
	my ($c) = @_;
	my $up = $c->{upstream} && $c->{stream} ? $c->{walk}{clusters}{ $c->{upstream} } : undef;
	return undef if !$up || !$up->{up};    ## no critic (ProhibitExplicitReturnUndef)

	# a primary writes nothing more by itself once all is flushed
	eval { $up->sql(q{SELECT pg_logical_emit_message(true, 'walk', 'flush')}) } if $up->{role} eq 'primary' && !$up->{recovery};
	return scalar eval { $up->sql(q{SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END - '0/0'}) };
}

=pod

=item watch(cluster, goal => LSN, quiet => 0 or 1)

Ask a server that was just spawned until it has come as far as it will: out of
recovery, at its target, at the goal, at a point where it stays, or to its end.
Returns a hash: end ("primary", "standby", "exit"; "waits" for a standby that
lets nobody in and lacks WAL; "hangs"), answers (without those that
repeat the one before; each a list of numbers), errors, lsn.

=cut

sub watch
{
	my ($c, %how) = @_;
	my %seen = (answers => [], errors => [], asked => 0);
	my $deadline = time + 120;
	my ($session, $error, $since);
	my ($begin, $refused, $size) = (time, 0, -s $c->{log} // 0);
	my $kind = $c->{recovery} // 'none';

	while (1)
	{
		if (defined $c->ended)
		{
			$seen{end} = 'exit';
			return \%seen;
		}
		if (time > $deadline)
		{
			$seen{end} = 'hangs';
			return \%seen;
		}
		if ($how{quiet} && $kind eq 'none')
		{
			if ($c->log_since =~ /database system is ready to accept connections/)
			{
				$seen{end} = 'primary';
				return \%seen;
			}
			sleep 0.01;
			next;
		}
		if ($kind eq 'standby' && !$seen{asked} && $refused > 20 && time - $begin > 4
			&& (() = slurp($c->{log}, $size) =~ /waiting for WAL to become available/g) > 10)
		{
			$seen{end} = 'waits';
			return \%seen;
		}
		undef $session if $session && $session->{lost};
		if (!$session)
		{
			($session, $error) = $c->connect;
			if (!$session)
			{
				$refused++;
				push @{ $seen{errors} }, $error if $error !~ $PATIENCE;
				sleep 0.002;
				next;
			}
			$session->query(q{SET lock_timeout = '200ms'});
		}
		my $index = $seen{asked} % 2;
		my ($rows, $e) = $session->query($index ? 'SET enable_seqscan = off;' . ANSWER_SQL : 'SET enable_seqscan = on;' . ANSWER_SQL);
		if ($e)
		{
			push @{ $seen{errors} }, $e if $e !~ $PATIENCE && @{ $seen{errors} } < 5;
			sleep 0.002;
			next if $e !~ /^ERROR 55P03/;
		}
		else
		{
			$seen{asked}++;
			my $answer = $rows->[0];
			push @{ $seen{answers} }, $answer
			  if !@{ $seen{answers} } || "@{ $seen{answers}[-1] }" ne "@$answer";
		}

		($rows, $e) = $session->query($STATE_SQL);
		next if $e;
		my ($recovery, $lsn, $paused) = @{ $rows->[0] };
		if ($recovery eq 'f')
		{
			next if $seen{asked} < 2;
			$seen{end} = 'primary';
			return \%seen;
		}
		$since = time if !defined $since || $lsn ne ($seen{lsn} // '');
		$seen{lsn} = $lsn;
		$seen{end} = 'standby';
		return \%seen if $kind eq 'standby' && defined $how{goal} && $lsn ne '' && $lsn >= $how{goal} && $seen{asked} > 3;
		return \%seen if $paused eq 'paused' && time - $since > 0.2;
		if ($kind eq 'standby')
		{
			# it may be slow, unless it does not mean to get there
			my $stays = $c->{conf}{recovery_min_apply_delay} || slurp($c->{log}, $size) =~ $CANNOT_FOLLOW;
			return \%seen if time - $since > (!defined $how{goal} ? 1 : $stays ? 3 : 20);
		}

		# the first moments matter most
		sleep($seen{asked} < 30 ? 0.002 : 0.05);
	}
	return;
}

=pod

=item contents(cluster)

Contents of all tables of all databases, by sequential scans: tables, a hash by
table; paths of relation files; lsn, where a standby was meanwhile, or undef.
Returns nothing if the startup process has locked a table.

=cut

sub contents
{
	my ($c) = @_;
	my $lsn = q{SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() - '0/0' END};
	my $deadline = time + 60;
	while (time < $deadline)
	{
		return if $c->sql($LOCKED_SQL) eq 't';
		my $before = $c->sql($lsn);
		my $r = contents_now($c);
		return { %$r, lsn => $before } if $c->sql($lsn) eq $before;
	}
	die "$c->{name}: goes on and on\n";
}

sub contents_now
{
	my ($c) = @_;
	my %r = (tables => {}, paths => {}, errors => 0);
	my ($session, $error) = $c->connect;
	die "$c->{name}: $error" if !$session;
	my @databases = map { $_->[0] } @{ ($session->query('SELECT datname FROM pg_database WHERE datallowconn AND datconnlimit <> -2 ORDER BY 1'))[0] };
	for my $db (@databases)
	{
		($session, $error) = $c->connect($db);
		if (!$session) { $r{tables}{$db} = $error; next }
		$session->query('SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off');

		# the catalogs of all databases take most of the time of a start
		my $few = $c->{walk}{brief} && $db ne 'postgres' ? q{AND (c.oid >= 16384 OR relname IN ('pg_class', 'pg_attribute'))} : '';
		my ($list, $e) = $session->query(qq{SELECT c.oid::regclass::text FROM pg_class c WHERE relkind IN ('r', 'm') AND
  (relpersistence = 'p' OR relpersistence = 'u' AND NOT pg_is_in_recovery()) AND relname NOT IN ('pg_statistic') $few ORDER BY c.oid});
		$r{tables}{$db} = $e if $e;
		my @tables = map { $_->[0] } @$list;
		my $sum = sub { return "SELECT '$_[0]', count(*), coalesce(sum(hashtext(t::text)::bigint), 0) FROM $_[0] t" };
		my ($all, $failed) = $session->query(join(' UNION ALL ', map { $sum->($_) } @tables));
		if ($failed)
		{
			$all = [];
			for my $table (@tables)
			{
				my ($one, $why) = $session->query($sum->($table));
				if ($why) { $r{tables}{"$db.$table"} = $why; $r{errors}++ }
				else { push @$all, @$one }
			}
		}
		$r{tables}{"$db.$_->[0]"} = "$_->[1] rows, sum $_->[2]" for @$all;
		my ($files) = $session->query(q{SELECT pg_relation_filepath(oid), relname, relpersistence FROM pg_class WHERE pg_relation_filepath(oid) IS NOT NULL});
		$r{paths}{ $_->[0] } = { name => "$db.$_->[1]", persistence => $_->[2] } for @$files;
	}
	return \%r;
}

# Every index of a server that is idle, by amcheck and by scans.  Returns what
# is wrong.
sub check_indexes
{
	my ($c) = @_;
	my $w = $c->{walk};
	my @bad;
	my ($session, $error) = $c->connect;
	return $error if !$session;
	return if $session->value($LOCKED_SQL) eq 't';
	my $recovery = $session->value('SELECT pg_is_in_recovery()') eq 't';
	my %check = $w->{server}->index_checks;
	for my $am (sort keys %check)
	{
		my ($list) = $session->query("SELECT c.oid, c.oid::regclass FROM pg_class c JOIN pg_index ON indexrelid = c.oid JOIN pg_am a ON a.oid = relam WHERE amname = '$am' AND indisvalid AND relpersistence = 'p' AND c.oid >= 16384");
		for my $index (@$list, $am eq 'btree' ? map { [ $_, $_ ] } qw(pg_class_oid_index pg_class_relname_nsp_index pg_attribute_relid_attnum_index) : ())
		{
			my (undef, $e) = $session->query("SELECT $check{$am} FROM pg_class c JOIN pg_index ON indexrelid = c.oid WHERE c.oid = '$index->[0]'::regclass");
			push @bad, "amcheck: $index->[1]: $e" if $e && !$c->is_damaged($e);
		}
	}
	my ($heaps, $e) = $session->query(q{SELECT c.oid::regclass, v.* FROM pg_class c, verify_heapam(c.oid) v WHERE relkind IN ('r', 'm') AND relpersistence = 'p' AND c.oid >= 16384 AND relname <> 'victim' LIMIT 3});
	push @bad, $e ? "verify_heapam: $e" : (), map { "verify_heapam: @$_[0 .. 4]" } @$heaps;
	(my $vm, $e) = $session->query(q{SELECT c.oid::regclass, v FROM pg_class c, pg_check_visible(c.oid) v WHERE relkind IN ('r', 'm') AND relpersistence = 'p' AND relname <> 'victim' LIMIT 3});
	push @bad, $e ? "pg_check_visible: $e" : (), map { "all-visible but is not: @$_" } @$vm;

	my $r = index_check(
		sub {
			my ($db, $sql) = @_;
			my ($in, $out) = ("$c->{dir}/index.sql", "$c->{dir}/index.out");
			$sql =~ s/^/SET client_min_messages = error;\n/;
			spew($in, $sql);
			unlink $out;
			run_to($out, "$w->{bin}/psql", '-XAtq', '-h', $w->{sockets}, '-p', $c->{port}, '-U', 'postgres', '-d', $db, '-f', $in);
			return slurp($out);
		},
		'postgres',
		writable => !$recovery);
	for my $p (@{ $r->{problems} })
	{
		next if $c->{damaged} && $p =~ /victim/;
		push @bad, "index: $p";
	}
	$w->{totals}{'indexes compared'} += $r->{checked};
	return @bad;
}

# The invariants, and the table that nobody changes.
sub check_invariants
{
	my ($c) = @_;
	my $w = $c->{walk};
	my @bad;
	my ($session, $error) = $c->connect;
	return $error if !$session;
	return if $session->value($LOCKED_SQL) eq 't';
	for my $on ('on', 'off')
	{
		my ($rows, $e) = $session->query("SET enable_seqscan = $on;" . ANSWER_SQL);
		push @bad, $e ? $e : invariants(@{ $rows->[0] });
	}
	my ($rows, $e) = $session->query(VICTIM_SQL);
	push @bad, 'victim: ' . ($e // "@{ $rows->[0] }") . ", not $w->{victim}"
	  if ($e ? !$c->is_damaged($e) : "@{ $rows->[0] }" ne $w->{victim} && !$c->{tolerant});
	return @bad;
}

1;
