# Copyright (c) 2026, the persistent-cache developers

# A list that comes slowly, or only in part, and one in a format that is not
# known, cost nothing but the list.  A host that says nothing costs no more, and
# neither does a standby that is killed while it warms.  A standby follows a new
# primary on its timeline.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib $FindBin::RealBin;
use Hotset;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes;

# So many bytes of a list come through before something happens to it.
use constant IN_THE_MIDDLE => 100;

my $primary = new_primary('primary');
add_table($primary, 'hot', 300);

my $behaviour = PostgreSQL::Test::Utils::tempdir . '/behaviour';
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 20) or die $!;
behave('pass');
my $wire = fork() // die $!;
if ($wire == 0)
{
	$SIG{CHLD} = 'IGNORE';
	while (my $client = $listener->accept)
	{
		my $child = fork() // die $!;
		next if $child != 0;
		eval { carry($client); 1 } or warn $@;
		POSIX::_exit(0);
	}
	POSIX::_exit(0);
}
END { kill 'KILL', $wire if $wire }

# How lists travel from now on:
#   pass   as they are
#   cut    the connection ends in the middle of one
#   hold   the rest does not come, until the server ends the connection
#   slow   the rest comes byte by byte
sub behave
{
	my ($how) = @_;

	write_file("$behaviour.new", $how);
	rename "$behaviour.new", $behaviour or die $!;
	unlink "$behaviour.held";
}

sub write_file
{
	my ($name, $contents) = @_;

	open(my $fh, '>', $name) or die "$name: $!";
	print $fh $contents;
	close $fh or die $!;
}

# What the process between standby and primary does with a connection.
sub carry
{
	my ($client) = @_;
	my $server = IO::Socket::UNIX->new(Peer => $primary->host . '/.s.PGSQL.' . $primary->port) or return;
	my $how = slurp_file($behaviour);
	my $both = IO::Select->new($client, $server);
	my $seen = '';

	for (;;)
	{
		foreach my $from ($both->can_read)
		{
			my ($data, $rest) = ('', '');
			my ($begin, $over);

			return if !sysread($from, $data, 65536);
			if ($from == $client)
			{
				syswrite($server, $data);
				next;
			}
			$seen .= $data;
			$begin = index($seen, 'PGHOTSET');
			$over = $begin < 0 ? 0 : length($seen) - $begin - IN_THE_MIDDLE;
			if ($how ne 'pass' && $over > 0)
			{
				$over = length($data) if $over > length($data);
				$rest = substr($data, -$over, $over, '');
			}
			syswrite($client, $data) if $data ne '';
			next if $rest eq '';
			return if $how eq 'cut';
			write_file("$behaviour.held", '') if $how eq 'hold';
			next if $how ne 'slow';
			foreach my $byte (split //, $rest)
			{
				syswrite($client, $byte) or return;
				Time::HiRes::usleep(5_000);
			}
		}
	}
}

my $standby = new_standby('standby', $primary, conf => "pg_hotset.source = 'host=127.0.0.1 port=@{[ $listener->sockport ]}'\n");
my $second = new_standby('second', $primary);

sub set
{
	$standby->append_conf('postgresql.conf', "$_[0]\n");
	$standby->reload;
}

# While no list comes, is the last one still in use, and in its file?
sub keeps_the_last
{
	my ($name) = @_;
	my $before = stat_of($standby, 'taken');

	wait_for_rounds($standby, 2);
	is(stat_of($standby, 'taken'), $before, "$name: the last list stays");
	is( $standby->safe_psql(
			'postgres',
			"SELECT s.taken = i.taken, s.list_pages = i.pages FROM pg_stat_hotset s, pg_hotset_info(pg_read_binary_file('pg_hotset.list')) i"),
		't|t',
		"$name: and so does its file");
}

$standby->start;
$second->start;
$primary->safe_psql('postgres', "SELECT pg_prewarm('hot')");
is_warm($standby, $primary, 'through the wire', 'hot');
cmp_ok(stat_of($standby, 'list_bytes'), '>', 2 * IN_THE_MIDDLE, 'the middle of a list is in the middle');

# It breaks, stops, or is slow.
my $closed = "problem LIKE '%closed the connection unexpectedly%'";
my $silent = "problem = 'there was no answer for 2 s'";
foreach my $case ([ 'cut', $closed ], [ 'hold', $silent ], [ 'slow', $silent ])
{
	my ($how, $problem) = @$case;

	set('pg_hotset.timeout = 2s');
	behave($how);
	wait_until($standby, $problem, "$how: the view says so");
	keeps_the_last($how);
	behave('pass');
	wait_until($standby, 'problem IS NULL', "$how: it goes on");
}

# The first of several hosts takes connections, and says nothing.  libpq would wait for it forever.
# There is one round with this string only, and the next list comes from the host that has answered.
my $mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100) or die $!;
my $two = "pg_hotset.source = 'host=127.0.0.1,127.0.0.1 port=@{[ $mute->sockport ]},";
my $lists = stat_of($standby, 'lists');
my $failures = stat_of($standby, 'failures');
my $offset = -s $standby->logfile;
set("pg_hotset.interval = 1h\n$two@{[ $listener->sockport ]}'");
$standby->wait_for_log(qr/got no list from 127.0.0.1:@{[ $mute->sockport ]}, and asks the next host: there was no answer for 2 s/, $offset);
wait_until($standby, "state = 'waiting' AND problem IS NULL", 'a host that says nothing: a list of the next comes in the same round');
set('pg_hotset.interval = 1s');
wait_until($standby, "lists > $lists + 3", '... and so do those of the next rounds');
is(scalar(() = slurp_file($standby->logfile, $offset) =~ /asks the next host/g), 1, '... without another wait');
is(stat_of($standby, 'failures'), $failures, '... and there was a list each time');
set("$two@{[ $mute->sockport ]}'");
wait_until($standby, $silent, 'two hosts that say nothing');
set("pg_hotset.source = 'host=127.0.0.1 port=@{[ $listener->sockport ]}'");

set('pg_hotset.timeout = 60s');
behave('slow');
$lists = stat_of($standby, 'lists');
# one may have been on its way
wait_until($standby, "lists > $lists + 1 AND problem IS NULL", 'who has the patience gets a slow list');

# A format that is not known, as of another version
$primary->safe_psql('postgres', <<'EOF');
CREATE FUNCTION list() RETURNS bytea LANGUAGE c AS '$libdir/pg_hotset', 'pg_hotset';
CREATE OR REPLACE FUNCTION pg_hotset() RETURNS bytea LANGUAGE sql AS 'SELECT set_byte(list(), 8, 99)';
EOF
behave('pass');
wait_until($standby, "problem = 'The list has the format of another version of pg_hotset.'", 'a list of another version');
keeps_the_last('a list of another version');
$primary->safe_psql('postgres',
	q(CREATE OR REPLACE FUNCTION pg_hotset() RETURNS bytea LANGUAGE c STRICT AS '$libdir/pg_hotset', 'pg_hotset'; DROP FUNCTION list()));
wait_until($standby, 'problem IS NULL', 'a list of another version: it goes on');

# The standby is killed while it warms.
set('pg_hotset.interval = 0');
wait_until($standby, "state = 'off'", 'off');
$standby->safe_psql('postgres',
	"SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot')");
set("pg_hotset.interval = 1s\npg_hotset.max_rate = 1");
$standby->wait_for_event('pg_hotset worker', 'Extension');
$standby->kill9;
$standby->append_conf('postgresql.conf', "pg_hotset.max_rate = 100\n");
start_killed($standby);
is_warm($standby, $primary, 'killed while it warms', 'hot');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM hot'), 1200, 'killed while it warms: the table is as it was');

# The primary is killed in the middle of a list.
behave('hold');
foreach (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	last if -e "$behaviour.held";
	Time::HiRes::usleep(100_000);
}
ok(-e "$behaviour.held", 'half of a list has come');
$primary->kill9;
wait_until($standby, $closed, 'the primary was killed in the middle of a list');
keeps_the_last('the primary is killed');
behave('pass');
start_killed($primary);
wait_until($standby, "problem IS NULL OR problem LIKE '%just started%'", '... and it goes on');

# A new primary, on a new timeline
$primary->wait_for_replay_catchup($_) foreach $standby, $second;
$primary->stop;
$standby->promote;
$second->enable_streaming($standby);
$second->reload;
wait_until($second, 'timeline = 2 AND problem IS NULL', 'a new timeline: the list is of the new primary');
like(stat_of($second, 'list_from'), qr/:@{[ $standby->port ]}$/, 'a new timeline: so says the view');
add_table($standby, 'newer', 100);
$standby->wait_for_replay_catchup($second);
is_warm($second, $standby, 'a new timeline', 'hot', 'newer');

$second->stop;
$standby->stop;
done_testing();
