
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Torture::Server - how is a server made, configured, started, stopped and asked?

=head1 DESCRIPTION

A server is named by its data directory: $dir/data is the one that crashes, with
the pool $dir/pool; $dir/a, with $dir/pool-a, and $dir/b, without a pool, are the
copies that recover.  Subs that run a program return its exit code, unless they
say otherwise.

=cut

package Torture::Server;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use Programs;
use Torture::State;

our @EXPORT = qw(@QUIET must_run copy_dir template write_conf append_conf with_shim file_roots
  start_server stop_server psql);

# Run a program that must not fail, or die with what it printed.
sub must_run
{
	my (@cmd) = @_;
	my $out = "$work/out.$$";
	unlink $out;
	my $rc = run_to($out, @cmd);
	die "@cmd failed ($rc): " . slurp($out) if $rc != 0;
	return;
}

# Copy a directory or a file.
sub copy_dir { must_run('cp', '-a', '--reflink=auto', $_[0], $_[1]); return; }

# The data directory of a cluster without a pool, made once per kind.  $segsize is
# the size of a WAL segment in MB.
sub template
{
	my ($checksums, $segsize) = @_;
	my $t = "$work/template-$checksums-$segsize";
	return $t if -d $t;
	must_run("$bin/initdb", '-D', "$t.tmp", '-A', 'trust', '-U', 'postgres', '--no-sync',
		'--no-instructions', '--locale=C', '--encoding=UTF8', "--wal-segsize=$segsize",
		$server->checksums($checksums));
	rename("$t.tmp", $t) or die;
	return $t;
}

# Append the settings of a plan to postgresql.conf.
sub write_conf
{
	my ($data, $s) = @_;
	my %c = (
		port => $port,
		listen_addresses => "''",
		unix_socket_directories => "'$work'",
		fsync => $opt{whole} ? 'on' : 'off',
		shared_buffers => $s->{shared_buffers},
		'pcache.mode' => $s->{mode},
		checkpoint_timeout => '30s',
		autovacuum_naptime => '1s',
		autovacuum_vacuum_cost_delay => 0,
		autovacuum_vacuum_threshold => 20,
		max_prepared_transactions => 40,
		max_connections => 30,
		allow_in_place_tablespaces => 'on',
		log_line_prefix => "'%m [%p] %b '",
		log_checkpoints => 'on',
		log_min_messages => 'warning',
		logging_collector => 'off',
		deadlock_timeout => '100ms',
		dynamic_shared_memory_type => 'mmap',
		timezone => "'UTC'",
		log_timezone => "'UTC'",
		track_io_timing => 'off',
		jit => 'off',
		%{ $s->{conf} });
	%c = $server->settings("$dir/pool", %c);
	open(my $fh, '>>', "$data/postgresql.conf") or die;
	print $fh "$_ = $c{$_}\n" for sort keys %c;
	close $fh;
	return;
}

# Append one line to it, durably.
sub append_conf
{
	my ($data, $line) = @_;
	open(my $fh, '>>', "$data/postgresql.conf") or die "$data/postgresql.conf: $!";
	print $fh "$line\n";
	close $fh or die;
	with_shim("$dir/pool", sub { must_run('sync', "$data/postgresql.conf") }) if $opt{whole};
	return;
}

# Settings for start_server(): nothing but recovery is to change data.
our @QUIET = ('autovacuum=off', 'max_logical_replication_workers=0', 'bgwriter_lru_maxpages=0',
	'log_min_messages=warning', 'checkpoint_timeout=1h', 'restart_after_crash=off');

# Run code with an environment in which the pool in a directory counts as
# persistent memory, if the power is to be cut, unless it is to be in DRAM.  Returns
# what the code returns.
sub with_shim
{
	my ($pool, $run) = @_;
	local %Programs::env = !$opt{whole} ? () :
	  (LD_PRELOAD => "$opt{whole}/libpowercut.so", POWERCUT_SEED => $round_seed,
		POWERCUT_FILES => "$pool.files", POWERCUT_ROOTS => join(':', file_roots($pool)),
		$dram ? () : (PMEM_IS_PMEM_FORCE => 1, POWERCUT_DIR => $pool, POWERCUT_IMAGE => "$pool.image"));
	return $run->();
}

# The directories whose files a power cut changes, of the server with this pool.
sub file_roots
{
	my ($pool) = @_;
	return grep { -d } $pool eq "$dir/pool" ? ("$dir/data", $pool, "$dir/images") : ("$dir/a", $pool);
}

# Start a server, with its log and more settings ("name=value") given, and wait
# for it.
sub start_server
{
	my ($data, $log, @settings) = @_;
	my @o = map { ('-c', $_) } @settings;
	my $pool = { "$dir/data" => "$dir/pool", "$dir/a" => "$dir/pool-a" }->{$data};
	my $run = sub {
		return run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-l', $log, '-w', '-t', '180',
			'-o', join(' ', map { "'$_'" } @o), 'start');
	};
	return $pool ? with_shim($pool, $run) : $run->();
}

# Stop it in the mode given ("fast", "immediate"), and wait for it.
sub stop_server
{
	my ($data, $mode) = @_;
	return run_to("$dir/pg_ctl.out", "$bin/pg_ctl", '-D', $data, '-w', '-t', '180', '-m', $mode, 'stop');
}

# Run SQL in a database, and return what it prints.  An error is a problem.
sub psql
{
	my ($db, $sql) = @_;
	my $file = "$dir/sql.$$";
	spew($file, $sql);
	my $out = "$dir/sql-out.$$";
	unlink $out;
	my $rc = run_to($out, "$bin/psql", '-XAtq', '-p', $port, '-v', 'ON_ERROR_STOP=1', '-d', $db, '-f', $file);
	my $text = slurp($out);
	chomp $text;
	problem("psql in $db: " . join(" ", $text =~ m{^(psql:.*)}mg)) if $rc != 0;
	return $text;
}

1;
