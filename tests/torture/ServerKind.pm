
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

ServerKind - what differs between servers that preload the library pg_pcache

=head1 SYNOPSIS

  my $server = ServerKind->new($bin);
  my %conf = $server->settings($pool, 'pcache.mode' => 'planned_restart', ...);

=head1 DESCRIPTION

The patched server loads the library by itself, and has methods of writing WAL of its
own.  An unpatched one, of PostgreSQL 15 or newer, has to preload it.  Fields:

  patched   true if it is the patched one
  major     its major version

=cut

package ServerKind;

use strict;
use warnings FATAL => 'all';

sub new
{
	my ($class, $bin) = @_;
	my ($major) = qx("$bin/postgres" --version) =~ /PostgreSQL\) (\d+)/ or die "no server in $bin\n";
	my $patched = qx("$bin/postgres" --describe-config) =~ /^io_lifetime_hints\t/m ? 1 : 0;
	return bless { major => $major, patched => $patched }, $class;
}

# pg_hotset is installed with the patched server only.
sub has_hotset { my ($self) = @_; return $self->{patched}; }

# Those of these settings that the server has.
sub supported
{
	my ($self, %conf) = @_;
	return $self->{patched} ? %conf : $self->unpatched(%conf);
}

# The same for an unpatched server of this major version.
sub unpatched
{
	my ($self, %conf) = @_;
	delete $conf{wal_sync_method} if ($conf{wal_sync_method} // '') =~ /^(?:pmem|open_direct)$/;
	$conf{recovery_prefetch} = 'try' if ($conf{recovery_prefetch} // '') eq 'read';
	delete $conf{io_method} if $self->{major} < 18;
	delete $conf{debug_io_direct} if $self->{major} < 16;
	return %conf;
}

# Settings for postgresql.conf of a cluster with its pool in that directory.
sub settings
{
	my ($self, $pool, %conf) = @_;
	return ($self->supported(%conf), 'pcache.directory' => "'$pool'", $self->{patched} ? () : (shared_preload_libraries => "'pg_pcache'"));
}

# Settings for an unpatched server without the library.
sub plain_settings
{
	my ($self, %conf) = @_;
	delete @conf{ grep { /^pcache\./ } keys %conf };
	return $self->unpatched(%conf);
}

# On the command line: a start without the pool, if possible without the library.
sub without_pool { my ($self) = @_; return $self->{patched} ? 'pcache.mode=off' : 'shared_preload_libraries='; }

# Options of initdb.
sub checksums { my ($self, $on) = @_; return $on ? '-k' : $self->{major} < 18 ? () : '--no-data-checksums'; }

# What amcheck has for the indexes c, with pg_index: a hash by access method.
sub index_checks
{
	my ($self) = @_;
	return (
		btree => $self->{major} < 17 ? 'bt_index_check(c.oid, true)' : 'bt_index_check(c.oid, true, indisunique)',
		$self->{major} < 18 ? () : (gin => 'gin_index_check(c.oid)'));
}

1;
