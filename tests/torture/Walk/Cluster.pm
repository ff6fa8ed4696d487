
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Cluster - a cluster with its pool: configure, start, stop, kill

=head1 DESCRIPTION

The fields that events look at:

  up        a postmaster runs
  clean     down after a clean stop
  role      primary or standby, as it will start or runs
  upstream  the name of the cluster that a standby follows
  recovery  undef, "standby" or "targeted": the signal file
  target    settings of a recovery target
  conf      what differs from the basic settings; mode, shared_buffers and so on
  server, programs   its kind, and where its programs are, if not those of the walk
  dead      neither this cluster nor its copy can be started

=cut

package Walk::Cluster;

use strict;
use warnings FATAL => 'all';

use File::Path qw(make_path remove_tree);
use JSON::PP qw();
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

use FileCut;
use Programs;
use Superblock;
use Walk::Client;
use Walk::Util;

our $POOL_SIZE = '64MB';

sub new
{
	my ($class, $walk, $name, %fields) = @_;
	my $dir = "$walk->{dir}/$name";
	make_path($dir);
	return bless {
		walk => $walk, name => $name, dir => $dir, data => "$dir/data", pool => "$dir/pool",
		log => "$dir/log", out => "$dir/out", port => $walk->{port}++,
		up => 0, clean => 1, role => 'primary', conf => {}, %fields
	}, $class;
}

sub make_pool
{
	my ($c) = @_;
	remove_tree($c->{pool});
	$c->write_conf;
	make_path($c->{pool}, { mode => 0700 }) if $c->{walk}{whole};
	$c->init_pool;
	return;
}

sub init_pool
{
	my ($c, @options) = @_;
	local %Programs::env = $c->shim;
	$c->keep_files;
	must_run($c->{out}, $c->bin . '/pg_pcache', 'init', '-D', $c->{data}, "--directory=$c->{pool}", "--size=$POOL_SIZE", @options);
	return;
}

# The environment in which the pool counts as persistent memory.
sub shim
{
	my ($c) = @_;
	my $tool = $c->{walk}{whole};
	return () if $c->{copy};
	return (LD_PRELOAD => $c->{walk}{wal_room}, WAL_ROOM_FILE => "$c->{dir}/room") if !$tool;
	return (LD_PRELOAD => "$tool/libpowercut.so", PMEM_IS_PMEM_FORCE => 1, POWERCUT_DIR => $c->{pool},
		POWERCUT_IMAGE => "$c->{pool}.image", POWERCUT_SEED => $c->{walk}{seed},
		POWERCUT_FILES => "$c->{pool}.files", POWERCUT_ROOTS => "$c->{data}:$c->{pool}");
}

# From now on the shim tells apart which files are durable, and all that is there is.
sub keep_files
{
	my ($c) = @_;
	all_durable("$c->{pool}.files", $c->{data}, $c->{pool}) if $c->{walk}{whole} && !$c->{copy};
	return;
}

# pg_wal has room for so many MB beside what is there, or for all that comes.
sub limit_wal
{
	my ($c, $mb) = @_;
	my $room = "$c->{dir}/room";
	unlink $room, "$room.new";
	return if !defined $mb;
	my $bytes = $mb * 1024 * 1024;
	$bytes += -s $_ // 0 for glob "$c->{data}/pg_wal/*";
	spew("$room.new", $bytes);
	rename "$room.new", $room or die "$room: $!";
	return;
}

# All of postgresql.conf, for programs that know the cache, or do not.
sub write_conf
{
	my ($c, %how) = @_;
	my $w = $c->{walk};
	my %conf = (
		port => $c->{port},
		listen_addresses => "''",
		unix_socket_directories => "'$w->{sockets}'",
		shared_buffers => '16MB',
		'pcache.mode' => 'always',
		'pcache.worker_delay' => '20ms',
		checkpoint_timeout => '1h',
		max_wal_size => '512MB',
		min_wal_size => '2MB',
		wal_keep_size => keys %{ $w->{clusters} } < 2 ? 0 : $w->{brief} ? '64MB' : '256MB',
		autovacuum => 'off',
		bgwriter_lru_maxpages => 0,
		max_prepared_transactions => 20,
		max_connections => 20,
		max_wal_senders => 8,
		max_parallel_workers_per_gather => 0,
		allow_in_place_tablespaces => 'on',
		log_line_prefix => "'%m [%p] %b '",
		log_checkpoints => 'on',
		log_min_messages => 'warning',
		deadlock_timeout => '100ms',
		dynamic_shared_memory_type => 'mmap',
		timezone => "'UTC'",
		log_timezone => "'UTC'",
		wal_retrieve_retry_interval => '100ms',
		restart_after_crash => 'off',
		io_method => 'sync',
		hot_standby => 'on',
		jit => 'off',
		restore_command => "'cp " . ($c->{archive} // $w->{archive}) . "/%f %p'",
		archive_command => "'cp %p $w->{archive}/%f.tmp && mv $w->{archive}/%f.tmp $w->{archive}/%f'",
		$w->{warming} && !$c->{copy} && !$how{plain} ? (shared_preload_libraries => "'pg_hotset'", 'pg_hotset.interval' => '1s') : (),
		%{ $c->{conf} },
		%{ $how{conf} // {} },
		%{ $c->{recovery} && $c->{recovery} eq 'targeted' ? $c->{target} : {} });

	$conf{primary_conninfo} = "'host=$w->{sockets} port=$w->{clusters}{ $c->{upstream} }{port} user=postgres application_name=$c->{name}'"
	  if $c->{upstream} && $c->{stream};
	%conf = $how{plain} ? $c->server->plain_settings(%conf) : $c->server->settings($c->{pool}, %conf);
	spew("$c->{data}/postgresql.conf", join('', map { "$_ = $conf{$_}\n" } sort keys %conf));
	unlink "$c->{data}/standby.signal", "$c->{data}/recovery.signal";
	spew("$c->{data}/standby.signal", '') if ($c->{recovery} // '') eq 'standby';
	spew("$c->{data}/recovery.signal", '') if ($c->{recovery} // '') eq 'targeted';
	return;
}

# The programs to use: "ours" or "stock".
sub bin { my ($c, $who) = @_; return ($who // 'ours') eq 'stock' ? $c->{walk}{vanilla} : $c->{programs} // $c->{walk}{bin}; }

sub server { my ($c) = @_; return $c->{server} // $c->{walk}{server}; }

# Start a postmaster, and do not wait for it.  bin, conf, and plain as above;
# limited: what pg_wal has room for is as before.
sub spawn
{
	my ($c, %how) = @_;
	die "$c->{name} runs already" if $c->{up};
	$c->write_conf(%how, plain => ($how{bin} // '') eq 'stock');
	$c->limit_wal if !$how{limited};
	$c->{log_offset} = -s $c->{log} // 0;
	$c->{run_conf} = $how{conf};
	$c->{run_plain} = ($how{bin} // '') eq 'stock';

	# copies in steps of 16 bytes, as on a processor that has nothing wider
	local %Programs::env = (GLIBC_TUNABLES => 'glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM', ($how{bin} // '') eq 'stock' ? () : $c->shim);
	$c->keep_files if ($how{bin} // '') ne 'stock';
	$c->{without} = was_cut_off("$c->{pool}/pool") // (($c->{broken} // '') eq 'dropped' ? undef : $c->{broken});
	$c->{pid} = start_to($c->{log}, $c->bin($how{bin}) . '/postgres', '-D', $c->{data});
	$c->{walk}{postmasters}{ $c->{pid} } = 1;
	$c->{up} = 1;
	$c->{clean} = 0;
	return;
}

# Has the postmaster ended?  Then its exit code, "signal N" or so.
sub ended
{
	my ($c) = @_;
	return $c->{exit} if !$c->{up};
	return if waitpid($c->{pid}, WNOHANG) == 0;
	return $c->reaped($?);
}

# The postmaster has ended with this status.
sub reaped
{
	my ($c, $status) = @_;
	$c->{exit} = $status & 127 ? 'signal ' . ($status & 127) : $status >> 8;
	$c->gone;
	return $c->{exit};
}

sub gone
{
	my ($c) = @_;
	$c->{up} = 0;
	$c->{ended_at} = time;
	delete $c->{walk}{postmasters}{ $c->{pid} };
	unlink "$c->{data}/postmaster.pid", map { "$c->{walk}{sockets}/.s.PGSQL.$c->{port}$_" } '', '.lock';
	return;
}

sub wait_end
{
	my ($c, $seconds) = @_;
	my $deadline = time + ($seconds // 120);
	while (time < $deadline)
	{
		return 1 if defined $c->ended;
		sleep 0.005;
	}
	return 0;
}

sub log_since { my ($c) = @_; return slurp($c->{log}, $c->{log_offset}); }

sub connect    ## no critic (ProhibitBuiltinHomonyms)
{
	my ($c, $db) = @_;
	return Walk::Client->connect($c->{walk}{sockets}, $c->{port}, $db);
}

# Run statements, each on its own; dies of errors.
sub sql
{
	my ($c, @statements) = @_;
	my ($session, $error) = $c->connect;
	die "$c->{name}: $error" if !$session;
	my $value;
	$value = $session->value($_) for @statements;
	return $value;
}

sub in_recovery { return $_[0]->sql('SELECT pg_is_in_recovery()') eq 't'; }

sub stop
{
	my ($c, $mode) = @_;
	my $children = children_of($c->{pid});
	kill { fast => 'INT', immediate => 'QUIT', smart => 'TERM' }->{$mode}, $c->{pid};
	if (!$c->wait_end)
	{
		$c->{walk}->problem("$c->{name}: does not stop ($mode)") if !$c->waits_for_walsender;
		$c->kill_all;
		return 0;
	}
	wait_gone(keys %$children);
	$c->{clean} = $mode ne 'immediate' && $c->{exit} eq '0';
	$c->{walk}->problem("$c->{name}: exit code $c->{exit} of a $mode stop") if $mode ne 'immediate' && !$c->{clean} && !$c->{lossy};
	return $c->{clean};
}

# Does a standby that stops wait for one that follows it?  PostgreSQL 18.6 does so for ever,
# with a cache or without, if it has replayed all of a segment: what it has sent ends where
# the next segment begins, and the other one confirms the end of the last record.
sub waits_for_walsender
{
	my ($c) = @_;
	my $titles = join "\n", values %{ children_of($c->{pid}) };
	return 0 if !$c->{recovery} || $titles !~ /walsender/ || $titles =~ /postgres: startup|walreceiver/ || $c->log_since !~ /checkpointer LOG:  shutting down\n\z/;
	$c->{walk}{totals}{'stops that wait for a walsender for ever'}++;
	$c->{walk}->say("$c->{name}: waits for a walsender for ever");
	return 1;
}

# SIGKILL to all, so that nobody sees another one die.
sub kill_all
{
	my ($c) = @_;
	return if !$c->{up};
	my $children = freeze($c->{pid});
	signal_all('KILL', $c->{pid}, keys %$children);
	waitpid($c->{pid}, 0);
	wait_gone(keys %$children);
	$c->gone;
	$c->{clean} = 0;
	return;
}

# A server was killed, or (by => 'fault') one of its processes has ended
# otherwise.  What the next start makes of that is known, unless something comes between.
sub note_ending
{
	my ($c, $by) = @_;
	my $mode = ($c->{run_conf} // {})->{'pcache.mode'} // $c->{conf}{'pcache.mode'};
	$c->{ending} = $by if !$c->{up} && $mode eq 'always' && !$c->{without} && !$c->{run_plain};
	return;
}

# What pg_pcache verify says of the next start.
sub verify
{
	my ($c) = @_;
	my $file = "$c->{dir}/verify.json";
	$c->write_conf;
	unlink $file, "$file.err";
	local %Programs::env = $c->shim;
	my $rc = run_to("$file.err", 'sh', '-c', 'exec "$0" verify --json -D "$1" > "$2"', $c->bin . '/pg_pcache', $c->{data}, $file);
	my $text = slurp($file);
	return { rc => $rc, error => slurp("$file.err"), $text ? %{ JSON::PP::decode_json($text) } : () };
}

# What the server said of the cache since its last start.
sub outcome
{
	my ($c, $text) = @_;
	$text //= $c->log_since;
	my @lines = $text =~ /(?:persistent cache: |DETAIL:  )((?:kept \d|starting cold|The server starts without the persistent cache)[^\n]*)/g;
	my @dropped = $text =~ /(Dropped: [^\n]*)/g;
	return (@lines ? $lines[-1] : '', @dropped ? $dropped[-1] : '');
}

# Is this the error of a table whose file was damaged?
sub is_damaged
{
	my ($c, $error) = @_;
	return $c->{damaged} && $error =~ /invalid page|could not read block|victim/;
}

# Read the configuration again, in the postmaster as well.
sub reload
{
	my ($c, $name, $value) = @_;
	$c->write_conf(conf => $c->{run_conf}, plain => $c->{run_plain});
	kill 'HUP', $c->{pid};
	my $deadline = time + 20;
	while (time < $deadline)
	{
		my ($session) = $c->connect;
		return if $session && (eval { $session->value("SHOW $name") } // '') eq $value;
		sleep 0.01;
	}
	die "$c->{name}: $name does not become $value\n";
}

sub control
{
	my ($c, $what) = @_;
	my $out = "$c->{dir}/control";
	unlink $out;
	run_to($out, $c->bin . '/pg_controldata', $c->{data});
	return slurp($out) =~ /^\Q$what\E:\s+(.*)$/m ? $1 : '';
}

1;
