<?xml version="1.0" encoding="utf-8"?>
<xsl:stylesheet xmlns:xsl="http://www.w3.org/1999/XSL/Transform" version="1.0">

<!-- References to the rest of PostgreSQL's documentation, which is not here, are
     written as what it calls the thing.  Most names follow from the ID. -->
<xsl:template match="xref[not(id(@linkend))]" priority="10">
  <xsl:variable name="id" select="@linkend"/>
  <xsl:choose>
    <xsl:when test="starts-with($id, 'guc-')">
      <xsl:value-of select="translate(substring-after($id, 'guc-'), '-', '_')"/>
    </xsl:when>
    <xsl:when test="starts-with($id, 'app-')">
      <xsl:value-of select="translate(substring-after($id, 'app-'), '-', '_')"/>
      <xsl:text>(1)</xsl:text>
    </xsl:when>
    <xsl:when test="$id = 'pgupgrade'">pg_upgrade(1)</xsl:when>
    <xsl:when test="$id = 'pgbuffercache'">pg_buffercache</xsl:when>
    <xsl:when test="$id = 'pgprewarm'">pg_prewarm</xsl:when>
    <xsl:when test="$id = 'libpq-envars'">the chapter on libpq in PostgreSQL's documentation</xsl:when>
    <xsl:when test="$id = 'libpq-connstring'">the chapter on libpq in PostgreSQL's documentation</xsl:when>
    <xsl:otherwise>
      <xsl:message terminate="yes">packaging/reference/elsewhere.xsl has no name for the ID "<xsl:value-of select="$id"/>"</xsl:message>
    </xsl:otherwise>
  </xsl:choose>
</xsl:template>
<xsl:template match="link[@linkend and not(id(@linkend))]" priority="10">
  <xsl:apply-templates/>
</xsl:template>

<!-- DocBook would add a trademark sign. -->
<xsl:template match="productname">
  <xsl:apply-templates/>
</xsl:template>

</xsl:stylesheet>
