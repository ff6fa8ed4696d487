
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Events::Work - loads, scans, settings

=head1 DESCRIPTION

Part of the table of events; see Walk::Events.

=cut

package Walk::Events;

use strict;
use warnings FATAL => 'all';

use File::Path qw(remove_tree make_path);
use Time::HiRes qw(sleep time);

use Walk::Load;
use Walk::Util;

our %EVENTS;

$EVENTS{load} = {
	weight => 10,
	when => \&writable,
	run => sub {
		my ($w, $c, $r) = @_;
		my $seconds = $r->fraction('seconds', $w->{brief} ? 0.2 : 0.8) + 0.2;
		run_load($c, $seconds, draw_load($r));
		return;
	}
};

$EVENTS{checkpoint} = { weight => sub { my ($w, @c) = @_; return (grep { $_->{role} eq 'standby' } @c) ? 8 : 4 }, when => \&up, run => sub { $_[1]->sql('CHECKPOINT'); return } };

# Read all, so that hint bits are set and pages cached; on a standby as well.
$EVENTS{scan} = {
	weight => 4,
	when => \&up,
	run => sub {
		my ($w, $c, $r) = @_;
		my $how = $r->pick('by', 'seq', 'index');
		my ($session, $error) = $c->connect;
		die "$c->{name}: $error\n" if !$session;
		$session->query('SET enable_seqscan = ' . ($how eq 'seq' ? 'on' : 'off'));
		$session->query($_) for "SELECT sum(length(filler)) FROM ledger WHERE seq > 0", "SELECT sum(length(filler)) FROM upd WHERE id > 0",
		  "SELECT count(key) FROM queue WHERE id > 0", "SELECT count(*) FROM queue WHERE prio >= 0", "SELECT sum(length(filler)) FROM victim WHERE id > 0";
		sleep 0.05;    # the worker
		return;
	}
};

# A database is copied by file, and its template changes.  Redo that comes to the
# copy once more must not find that change.  There are no indexes, since what is
# evicted before a crash may get into the copy on any server.
$EVENTS{copy_database} = {
	weight => sub { my ($w, @c) = @_; return (grep { $_->{role} eq 'standby' } @c) ? 8 : 2 },
	when => \&writable,
	run => sub {
		my ($w, $c, $r) = @_;
		my $n = $r->number('copy', 1, 3);
		my $rows = $r->number('rows', 100, 2000);

		if (!$c->sql("SELECT count(*) FROM pg_database WHERE datname = 'copied'"))
		{
			$c->sql('CREATE DATABASE copied');
			($c->connect('copied'))[0]->value('CREATE TABLE t (i int, filler text) WITH (autovacuum_enabled = off)');
		}
		$c->sql("DROP DATABASE IF EXISTS copy$n", "CREATE DATABASE copy$n TEMPLATE copied STRATEGY file_copy");
		my ($session, $error) = $c->connect('copied');
		die "$c->{name}: $error\n" if !$session;
		$session->value("INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, $rows) i");
		$session->value('UPDATE t SET i = -i WHERE i % 10 = 0') if $r->chance('update', 0.5);
		sleep 0.05;    # the worker
		return;
	}
};

$EVENTS{mode} = {
	weight => 2,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		$c->{conf}{'pcache.mode'} = $r->pick('to', 'always', 'always', 'planned_restart', 'off');
		return;
	}
};

# Where the last list of hot pages is; it survives the server that it is from.
sub hot_list { my ($w) = @_; return "$w->{dir}/hot.list"; }

# pg_hotset warms this server: with what its primary has, or with what it had itself.
$EVENTS{hotset} = {
	weight => 3,
	when => sub { return up(@_) && $_[0]{server}->has_hotset; },
	run => sub {
		my ($w, $c, $r) = @_;
		my $anew = $r->chance('anew', 0.5);
		my ($from) = grep { $_->{up} && $_->{role} eq 'primary' && !$_->{recovery} } $c, $c->{upstream} ? $w->{clusters}{ $c->{upstream} } : ();
		spew(hot_list($w), pack('H*', substr($from->sql('SELECT pg_hotset()'), 2))) if $from && ($anew || !-e hot_list($w));
		return 'no list' if !-e hot_list($w);
		$c->sql('SELECT pg_buffercache_evict_all()') if $r->chance('evict', 0.5);
		return 'read, here, skipped: ' . $c->sql("SELECT * FROM pg_hotset_load('" . hot_list($w) . "')");
	}
};

$EVENTS{wal_method} = {
	weight => 3,
	when => sub { return @{ $_[0]{methods} } > 1 && !$_[1]{dead}; },
	run => sub {
		my ($w, $c, $r) = @_;
		my $method = $c->{conf}{wal_sync_method} = $r->pick('to', @{ $w->{methods} });
		$c->reload('wal_sync_method', $method) if $c->{up};
		return;
	}
};

$EVENTS{settings} = {
	weight => 4,
	when => \&down,
	run => sub {
		my ($w, $c, $r) = @_;
		$c->{conf}{shared_buffers} = $r->pick('buffers', '2MB', '8MB', '16MB', '32MB', '64MB',
			# more than the pool has, so that the server makes it larger
			$w->{whole} ? () : ('66MB', '100MB'));
		$c->{conf}{full_page_writes} = $r->pick('fpw', 'on', 'on', 'off');
		$c->{conf}{wal_log_hints} = $r->pick('hints', 'on', 'off');
		$c->{conf}{'pcache.worker_delay'} = $r->pick('delay', '10ms', '50ms', '200ms', '1s');
		$c->{conf}{'pcache.recovery'} = $r->pick('recovery', 'short', 'short', 'full');
		return;
	}
};

1;
