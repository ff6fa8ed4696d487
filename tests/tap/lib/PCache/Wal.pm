# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

PCache::Wal - clusters that write WAL with wal_sync_method = pmem or open_direct

=head1 DESCRIPTION

pg_wal is moved to tmpfs, and PMEM_IS_PMEM_FORCE=1 makes libpmem take that for
persistent memory.  That switch is for tests only: on a real server it would
make a promise that the memory cannot keep.

=cut

package PCache::Wal;

use strict;
use warnings FATAL => 'all';

use Carp;
use Exporter 'import';
use IPC::Run qw();
use File::Basename qw(basename);
use PCache qw(pool_root log_offset);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  new_wal_node
  wal_on_tmpfs
  switch_method
  lsn_number
  segment_of
  read_wal
  start_clients
  acknowledged
  missing
  fill_recycled_segments
  lose_unsynced
  start_receivewal
  backups_are_whole
  standbys_follow
  decoding_is_whole
  received_is_archived
  method_is_refused
);

=pod

=item new_wal_node(name, %params)

A cluster with pg_wal on tmpfs, or on disk, not started.

  init      parameters for PostgreSQL::Test::Cluster->init
  segsize   WAL segment size in MB (16)
  method    wal_sync_method, default pmem; undef: configure nothing
  disk      leave pg_wal where it is
  conf      more lines for postgresql.conf

=cut

sub new_wal_node
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	my $segsize = $params{segsize} // 16;
	my $method = exists $params{method} ? $params{method} : 'pmem';
	my %init = %{ $params{init} // {} };

	$init{extra} = [ "--wal-segsize=$segsize" ] if $segsize != 16;
	$node->init(%init);
	$node->append_conf('postgresql.conf', "fsync = on\nautovacuum = off\n");
	$node->append_conf('postgresql.conf', "wal_sync_method = $method\n")
	  if defined $method;
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	wal_on_tmpfs($node) if !$params{disk};
	return $node;
}

# Move the pg_wal of a cluster that is down to tmpfs.  Returns the new place.
sub wal_on_tmpfs
{
	my ($node) = @_;
	my $wal = $node->data_dir . '/pg_wal';
	my $target = pool_root() . '/wal_' . basename($node->basedir) . '_' . $node->name;

	system_or_bail('cp', '-a', $wal, $target);
	system_or_bail('rm', '-rf', $wal);
	symlink $target, $wal or croak "could not link $wal: $!";
	return $target;
}

# Change wal_sync_method of a running server, and wait until a new session
# and, with it, the postmaster have it.
sub switch_method
{
	my ($node, $method) = @_;

	$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
	$node->reload;
	$node->poll_query_until('postgres',
		"SELECT setting = '$method' FROM pg_settings WHERE name = 'wal_sync_method'")
	  or croak "wal_sync_method does not become $method";
	return;
}

sub lsn_number
{
	my ($lsn) = @_;
	my ($high, $low) = split m{/}, $lsn;

	return (hex($high) << 32) + hex $low;
}

# Path of the segment that an LSN lies in, and the LSN's offset in it.
sub segment_of
{
	my ($node, $lsn, $segsize, $timeline) = @_;
	my $bytes = ($segsize // 16) * 1024 * 1024;
	my $number = int(lsn_number($lsn) / $bytes);
	my $per_id = 2**32 / $bytes;

	return (
		sprintf('%s/pg_wal/%08X%08X%08X',
			$node->data_dir, $timeline // 1, $number / $per_id, $number % $per_id),
		lsn_number($lsn) % $bytes);
}

# WAL records between two LSNs, as pg_waldump prints them; the end of WAL is
# not an error.
sub read_wal
{
	my ($node, $start, $end, $timeline) = @_;
	my $wal = $node->data_dir . '/pg_wal';
	my ($any) = grep { /\/[0-9A-F]{24}$/ } glob "$wal/*";
	my $size = -s $any;
	my $name = sub {
		my ($lsn) = @_;
		return sprintf('%08X%08X%08X', $timeline // 1, $lsn >> 32,
			int(($lsn & 0xffffffff) / $size));
	};

	# Left to itself, pg_waldump takes the segment size from any file that it
	# finds, and a segment that was made ahead has no header yet.
	my @segments = $name->(lsn_number($start));
	push @segments, $name->(lsn_number($end) - 1) if defined $end;
	my ($out, $err) = run_command(
		[
			'pg_waldump',
			'--path' => $wal,
			'--timeline' => $timeline // 1,
			'--start' => $start,
			defined $end ? ('--end' => $end) : (),
			@segments
		]);

	return ($out, $err);
}

=pod

=item start_clients(node, clients => N, filler => BYTES, switch => PROBABILITY)

Sessions that insert rows into acked (id bigint, filler text), one per
transaction, and log what was acknowledged in files of their own; now and then
one switches to a new segment.  Ids are unique in a script.

=cut

my $next_id = 1;

sub start_clients
{
	my ($node, %params) = @_;
	my @runs;

	for my $client (1 .. $params{clients})
	{
		my $script = '';
		my $log = $node->basedir . "/acked.$client";
		my $file = "$log.sql";

		# psql prints the second line only after the commit was acknowledged
		for (1 .. 3000)
		{
			$script .= "INSERT INTO acked VALUES ($next_id, repeat('x', $params{filler}));\n";
			$script .= "SELECT $next_id, pg_current_wal_flush_lsn();\n";
			$script .= "SELECT NULL FROM pg_switch_wal();\n" if rand() < ($params{switch} // 0);
			$next_id++;
		}
		unlink $file;
		append_to_file($file, $script);
		push @runs,
		  {
			log => $log,
			run => IPC::Run::start(
				[ 'psql', '-XAtq', '-F', ' ', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', $file ],
				'<', '/dev/null', '>', $log, '2>', "$log.err")
		  };
	}
	return @runs;
}

# Wait for such sessions, whose server is dead.  Returns the ids that were
# acknowledged, and the highest LSN that was said to be flushed.
sub acknowledged
{
	my @runs = @_;
	my @ids;
	my $highest = 0;

	IPC::Run::finish($_->{run}) for @runs;
	for my $line (map { split /\n/, slurp_file($_->{log}) } @runs)
	{
		my ($id, $lsn) = $line =~ m{^(\d+) ([0-9A-F]+/[0-9A-F]+)$} or next;

		push @ids, $id;
		$highest = lsn_number($lsn) if lsn_number($lsn) > $highest;
	}
	return (\@ids, $highest);
}

# How many of these ids a node does not have.
sub missing
{
	my ($node, $ids) = @_;

	return $node->safe_psql('postgres',
		"SELECT count(*) FROM unnest('{" . join(',', @$ids) . "}'::bigint[]) AS i(id)
		 WHERE NOT EXISTS (SELECT FROM acked a WHERE a.id = i.id)");
}

=pod

=item fill_recycled_segments(node)

Make the table acked, and have all of the few segments of a running cluster
recycled, so that they are full of older WAL.

=cut

sub fill_recycled_segments
{
	my ($node) = @_;

	$node->safe_psql('postgres', q{
CREATE TABLE acked (id bigint PRIMARY KEY, filler text);
CREATE TABLE noise (id int, filler text)});
	$node->safe_psql('postgres',
		q{INSERT INTO noise SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 2500) g; TRUNCATE noise; CHECKPOINT})
	  for 1 .. 4;
	return;
}

=pod

=item lose_unsynced(images, unit, chance, segment ...)

The power is cut: of each unit of bytes in which a segment differs from its
image, which has what is on media and is named by the segment's inode, the new
bytes survive with the given chance.  Returns how many survived, and how many
did not.

=cut

sub lose_unsynced
{
	my ($images, $unit, $chance, @segments) = @_;
	my ($kept, $dropped) = (0, 0);

	for my $file (@segments)
	{
		my $image = "$images/" . (stat $file)[1];
		my $new = slurp_file($file);
		my $old = slurp_file($image);

		next if $old eq $new;
		die "$image has another size than $file" if length $old != length $new;
		for (my $page = 0; $page < length $new; $page += 8192)
		{
			next if substr($old, $page, 8192) eq substr($new, $page, 8192);
			for (my $at = $page; $at < $page + 8192; $at += $unit)
			{
				next if substr($old, $at, $unit) eq substr($new, $at, $unit);
				if (rand() < $chance)
				{
					substr($old, $at, $unit) = substr($new, $at, $unit);
					$kept++;
				}
				else
				{
					$dropped++;
				}
			}
		}
		PCache::write_bytes($file, 0, $old);
		PCache::write_bytes($image, 0, $old);
	}
	return ($kept, $dropped);
}

# Have pg_receivewal put the WAL of a running cluster into basedir/received.
sub start_receivewal
{
	my ($primary) = @_;
	my $dir = $primary->basedir . '/received';

	mkdir $dir or die "could not create $dir: $!";
	return IPC::Run::start(
		[ 'pg_receivewal', '--no-sync', '--directory' => $dir, '--dbname' => $primary->connstr ],
		'>', '/dev/null', '2>', $primary->basedir . '/receivewal.log');
}

# A test: base backups with WAL that is streamed, and that is fetched, by these names.
sub backups_are_whole
{
	my ($primary) = @_;

	for my $how (qw(stream fetch))
	{
		$primary->backup($how, backup_options => [ '-X', $how ]);
		command_ok([ 'pg_verifybackup', $primary->backup_dir . "/$how" ], "base backup: -X $how");
	}
	return;
}

# A test: a standby has the rows of table t that its primary has, and so has each standby
# of that one.
sub standbys_follow
{
	my ($name, $primary, @standbys) = @_;
	my $rows = $primary->safe_psql('postgres', 'SELECT count(*) FROM t');
	my $lsn = $primary->lsn('flush');
	my $from = $primary;

	for my $standby (@standbys)
	{
		$from->wait_for_catchup($standby, 'replay', $lsn);
		is($standby->safe_psql('postgres', 'SELECT count(*) FROM t'), $rows, "$name: " . $standby->name);
		$from = $standby;
	}
	return;
}

# A test: the slot "logical", which is as old as table t, has each row of that.
sub decoding_is_whole
{
	my ($primary) = @_;

	is( $primary->safe_psql('postgres',
			q{SELECT count(*) FROM pg_logical_slot_get_changes('logical', NULL, NULL) WHERE data LIKE 'table public.t: INSERT%'}),
		$primary->safe_psql('postgres', 'SELECT count(*) FROM t'),
		'logical decoding');
	return;
}

# A test: what pg_receivewal has put into basedir/received is what was archived.
sub received_is_archived
{
	my ($primary) = @_;
	my ($compared, $different) = (0, 0);
	my $last;

	# an empty segment would not be switched
	$primary->safe_psql('postgres', 'SELECT txid_current()');
	$last = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
	$primary->poll_query_until('postgres', qq{SELECT last_archived_wal >= '$last' FROM pg_stat_archiver})
	  or die 'archiving does not get on';
	for my $path (glob $primary->archive_dir . '/[0-9A-F]*')
	{
		my ($name) = $path =~ m{/([0-9A-F]{24})$} or next;
		my $other = $primary->basedir . "/received/$name";

		next if !-e $other;
		$compared++;
		$different++ if slurp_file($path) ne slurp_file($other);
	}
	cmp_ok($compared, '>', 5, 'segments that were archived and received');
	is($different, 0, 'pg_receivewal and the archive have the same bytes');
	return;
}

# A test: the running node, whose method is fdatasync, takes no other one, by
# ALTER SYSTEM or a reload, and says why (patterns).  It stays in the file.
sub method_is_refused
{
	my ($node, $method, $message, $detail, $hint) = @_;
	my ($rc, undef, $err) = $node->psql('postgres', "ALTER SYSTEM SET wal_sync_method = '$method'");
	my $offset;

	isnt($rc, 0, 'ALTER SYSTEM fails');
	like($err, $message, '... and says why');
	like($err, $detail, '... with the mount');
	like($err, $hint, '... and a hint');

	$offset = log_offset($node);
	$node->adjust_conf('postgresql.conf', 'wal_sync_method', $method);
	$node->reload;
	$node->wait_for_log($message, $offset);
	is($node->safe_psql('postgres', 'SHOW wal_sync_method'), 'fdatasync', 'a reload keeps the old method');
	$node->safe_psql('postgres', 'CREATE TABLE t AS SELECT 1');
	return;
}

1;
